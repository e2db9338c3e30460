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

package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const (
	// imagesAnnotation, on the Node, tells which images it has.
	imagesAnnotation = "e2e.memslice.dev/images"
	// imageAnnotation, on the plugin's pods, has them replaced with their image.
	imageAnnotation = "e2e.memslice.dev/image"
)

func (c *Cluster) image(name string) string { return filepath.Join(c.options.Images, name+".tar") }

// loadImages puts the images on the node unless it has just these.
func (c *Cluster) loadImages(ctx context.Context, say func(string)) error {
	images := []string{c.image("memslice"), c.image("demo")}
	digest, err := digest(images...)
	if err != nil {
		return fmt.Errorf("%w: run \"make image\" first", err)
	}
	node, err := c.Client.CoreV1().Nodes().Get(ctx, c.NodeName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", c.NodeName, err)
	}
	if node.Annotations[imagesAnnotation] == digest {
		say("the node has them")
		return nil
	}
	if _, err := c.tools.run(ctx, say, "localcluster",
		append(append([]string{"load-image"}, c.options.at()...), images...)...); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, imagesAnnotation, digest)
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, c.NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("note the images on node %s: %w", c.NodeName, err)
	}
	return nil
}

// digest is short and changes with any of the files.
func digest(files ...string) (string, error) {
	hash := sha256.New()
	for _, path := range files {
		file, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("read a container image: %w", err)
		}
		_, err = io.Copy(hash, file)
		_ = file.Close() // it was only read
		if err != nil {
			return "", fmt.Errorf("read container image %s: %w", path, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// install has the chart installed, the plugin running and the GPUs published.
func (c *Cluster) install(ctx context.Context, say func(string)) error {
	if err := c.upgrade(ctx, ""); err != nil {
		return err
	}
	say("installed, with the values in " + filepath.Join(c.status.Dir, "conf", valuesFile))
	if err := c.awaitInstalled(ctx, say); err != nil {
		return fmt.Errorf("%w\n\nThe end of the plugin's log:\n%s\nOther logs are in %s", err, lastLines(c.PluginLog(ctx, failureLines), failureLines), c.LogDir)
	}
	return nil
}

func (c *Cluster) awaitInstalled(ctx context.Context, say func(string)) error {
	say("waiting for the plugin and the ResourceSlices")
	if c.Emulated {
		// The plugin does not start without its file.
		if err := c.deliver(ctx); err != nil {
			return err
		}
		if err := c.startEmulator(ctx); err != nil {
			return err
		}
		return c.AwaitGPUs(ctx)
	}
	if err := c.AwaitPlugin(ctx); err != nil {
		return err
	}
	// A plugin that ran before has a former file for a while.
	if err := c.deliver(ctx); err != nil {
		return err
	}
	return c.AwaitGPUs(ctx)
}

// valuesFile, among the cluster's, has what the chart has to know of the cluster.
const valuesFile = "memslice-values.yaml"

// values are what the chart has to know of this cluster.
func (c *Cluster) values() ([]byte, error) {
	metrics, err := c.metricsAddress()
	if err != nil {
		return nil, err
	}
	plugin := map[string]any{
		"hostNetwork":    true,
		"scanInterval":   scanInterval,
		"auditInterval":  auditInterval,
		"metricsAddress": metrics,
		"extraEnv": []any{
			map[string]any{"name": "MEMSLICE_SYS_ROOT", "value": "/driver-root/sys"},
			map[string]any{"name": "MEMSLICE_PROC_ROOT", "value": "/driver-root/proc"},
			map[string]any{"name": "MEMSLICE_RECONCILE_INTERVAL", "value": reconcileInterval},
		},
		// The driver root is mounted read-only; the simulation writes its state.
		"extraVolumes": []any{map[string]any{
			"name": "fakegpu-state", "hostPath": map[string]any{"path": filepath.Join(c.GPUs.root, stateDir), "type": "Directory"},
		}},
		"extraVolumeMounts": []any{map[string]any{"name": "fakegpu-state", "mountPath": "/driver-root/" + stateDir}},
	}
	if c.Emulated {
		// The plugin is run as a process; no pod of the chart's must be placed.
		plugin["nodeSelector"] = map[string]any{"e2e.memslice.dev/runs-containers": "true"}
	} else {
		image, err := digest(c.image("memslice"))
		if err != nil {
			return nil, err
		}
		plugin["podAnnotations"] = map[string]any{imageAnnotation: image}
	}
	values, err := yaml.Marshal(map[string]any{
		"image":          map[string]any{"repository": "docker.io/memslice/memslice", "tag": "dev", "pullPolicy": "Never"},
		"kubeletRootDir": c.status.KubeletRootDir,
		"driverRoot":     c.GPUs.root,
		"cdiRoot":        c.status.CDIDir,
		"k8sServiceHost": c.status.APIServerHost,
		"k8sServicePort": strconv.Itoa(c.status.APIServerPort),
		"logVerbosity":   4,
		"kubeletPlugin":  plugin,
		"deviceClasses":  map[string]any{"extendedResourceName": ExtendedName},
	})
	if err != nil {
		return nil, fmt.Errorf("encode the chart's values: %w", err)
	}
	return values, nil
}

// These are short, so that tests need not wait for changed GPUs, nor for changed
// labels of the node.
const (
	scanInterval      = "1s"
	auditInterval     = "1s"
	reconcileInterval = "2s"
)
