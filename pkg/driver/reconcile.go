// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/prepare"
)

// reconcile puts right what calls of the kubelet cannot, and logs what it could
// not do.
func reconcile(ctx context.Context, cfg *config.Config, client kubernetes.Interface, devices claim.Devices, preparer *prepare.Preparer) {
	report, err := preparer.Reconcile(ctx)
	for _, c := range report.Unprepared {
		err = errors.Join(err, removeMetadata(cfg, c))
	}
	err = errors.Join(err, recoverClaims(ctx, cfg, client, devices, preparer))
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Reconciling the prepared claims; trying again later", "interval", cfg.ReconcileInterval)
	}
}

// removeMetadata removes the device metadata of a claim that is gone. The
// kubelet plugin helper wrote it and removes it when the kubelet calls
// Unprepare, which for this claim it does not do. The layout is that of
// [kubeletplugin.EnableDeviceMetadata]; its directory is named by the claim's
// name, so it may be a later claim's by now.
func removeMetadata(cfg *config.Config, c kubeletplugin.NamespacedObject) error {
	specs, err := filepath.Glob(filepath.Join(cfg.CDIRoot, fmt.Sprintf("%s_metadata_%s_*.json", gpu.DriverName, c.UID)))
	if err != nil {
		return fmt.Errorf("look for the metadata of claim %s: %w", c, err)
	}
	var errs []error
	for _, spec := range specs {
		errs = append(errs, os.Remove(spec))
	}
	dir := metadataDir(cfg, c.NamespacedName)
	files, err := filepath.Glob(filepath.Join(dir, "*", metadataFile))
	if err != nil {
		return fmt.Errorf("look for the metadata of claim %s: %w", c, err)
	}
	for _, file := range files {
		owner, err := metadataOwner(file)
		if err == nil && owner.UID == c.UID {
			err = os.RemoveAll(filepath.Dir(file))
		}
		errs = append(errs, err)
	}
	// Only when it is empty.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the metadata of claim %s: %w", c, err)
	}
	return nil
}

const metadataFile = "metadata.json"

// metadataDir has a directory for each request of a claim; "*" for all claims.
func metadataDir(cfg *config.Config, c types.NamespacedName) string {
	return filepath.Join(cfg.PluginDir(), "dra-device-metadata", c.Namespace+"_"+c.Name)
}

// metadataOwner is the claim that a metadata file was written for.
func metadataOwner(file string) (kubeletplugin.NamespacedObject, error) {
	var object metav1.PartialObjectMetadata
	data, err := os.Open(file)
	if err == nil {
		// The first of several documents, one for each version.
		err = json.NewDecoder(data).Decode(&object)
		data.Close()
	}
	if err != nil {
		return kubeletplugin.NamespacedObject{}, fmt.Errorf("read the owner of %s: %w", file, err)
	}
	return kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, UID: object.UID,
	}, nil
}
