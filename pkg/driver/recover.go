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
	"errors"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/prepare"
)

// recoverClaims finds the claims that have device metadata and no record. Either
// the record could not be read and was set aside, while pods go on using the
// claim: it is prepared again, since the kubelet does that for new pods only,
// and until then no container of theirs could be restarted. Or the claim is
// gone, and the end of it was cut short.
func recoverClaims(ctx context.Context, cfg *config.Config, client kubernetes.Interface, devices claim.Devices, preparer *prepare.Preparer) error {
	files, err := filepath.Glob(filepath.Join(metadataDir(cfg, types.NamespacedName{Namespace: "*", Name: "*"}), "*", metadataFile))
	if err != nil {
		return fmt.Errorf("look for the metadata of claims: %w", err)
	}
	var errs []error
	owners := sets.New[kubeletplugin.NamespacedObject]()
	for _, file := range files {
		owner, err := metadataOwner(file)
		if err == nil && filepath.Dir(filepath.Dir(file)) != metadataDir(cfg, owner.NamespacedName) {
			err = fmt.Errorf("%s is said to be of claim %s, whose directory it is not", file, owner)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		owners.Insert(owner)
	}
	for owner := range owners {
		if err := recoverClaim(ctx, cfg, client, devices, preparer, owner); err != nil {
			errs = append(errs, fmt.Errorf("claim %s has device metadata and no record: %w", owner, err))
		}
	}
	return errors.Join(errs...)
}

func recoverClaim(ctx context.Context, cfg *config.Config, client kubernetes.Interface, devices claim.Devices, preparer *prepare.Preparer, owner kubeletplugin.NamespacedObject) error {
	if known, err := preparer.Knows(ctx, owner.UID); known || err != nil {
		return err
	}
	c, err := getClaim(ctx, client, owner.Namespace, owner.Name)
	if err != nil {
		return err
	}
	if c == nil || !claim.InUse(c, owner.UID, cfg.NodeName) {
		return removeMetadata(cfg, owner)
	}
	plan, err := claim.FromClaim(c, devices)
	if err != nil {
		return err
	}
	if _, err := preparer.Prepare(ctx, plan); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Prepared a claim again whose record was lost", "claim", klog.KObj(c), "claimUID", c.UID)
	return nil
}
