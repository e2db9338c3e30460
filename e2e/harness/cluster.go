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
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Names of what the chart installs, with the release that Up makes.
const (
	Namespace      = "memslice"
	DriverName     = "gpu.memslice.dev"
	ShareClass     = "slice.memslice.dev"
	WholeClass     = "gpu.memslice.dev"
	MIGClass       = "mig.memslice.dev"
	PluginAccount  = "memslice-kubelet-plugin"
	DemoImage      = "docker.io/memslice/demo:dev"
	ExtendedName   = "nvidia.com/gpu" // whole GPUs under resources.limits
	pluginSelector = "app.kubernetes.io/instance=memslice,app.kubernetes.io/component=kubelet-plugin"
	pluginName     = "memslice-kubelet-plugin"
)

// Cluster is a local cluster with memslice on it.
type Cluster struct {
	Client kubernetes.Interface
	Config *rest.Config
	GPUs   *GPUs

	Kubeconfig        string
	KubernetesVersion string
	NodeName          string
	// Emulated says that no containers run, EmulatedWhy the reason.
	Emulated    bool
	EmulatedWhy string
	LogDir      string
	CDIDir      string

	options Options
	status  status
	tools   tools
	// configured is the values of the last Configure; nil where the plugin's
	// file may be another.
	configured *string
}

// Up brings up what is not up yet: the cluster, the GPUs, the images and
// memslice, and waits until the GPUs are published.
func Up(ctx context.Context, o Options, steps *Steps) (*Cluster, error) {
	if err := o.Complete(); err != nil {
		return nil, err
	}
	c := &Cluster{options: o, tools: tools{bin: o.Bin}}
	err := steps.Do("Kubernetes, on this machine", func(say func(string)) (err error) {
		c.status, err = bringUp(ctx, c.tools, o, say)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	err = steps.Do("Simulated GPUs, below the driver's library", func(say func(string)) error {
		if err := c.GPUs.Ensure(ctx, o.Preset, 0); err != nil {
			return err
		}
		if err := c.startKernel(ctx); err != nil {
			return err
		}
		state, err := c.GPUs.State(ctx)
		if err == nil {
			say(fmt.Sprintf("%s: %d GPUs, driver %s", state.Preset, len(state.GPUs), state.Driver.Version))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if !c.Emulated {
		err = steps.Do("Container images, without a registry", func(say func(string)) error { return c.loadImages(ctx, say) })
		if err != nil {
			return nil, err
		}
	}
	return c, steps.Do("memslice, by its Helm chart", func(say func(string)) error { return c.install(ctx, say) })
}

// connect fills in what follows from the cluster's status.
func (c *Cluster) connect() error {
	s := c.status
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read the cluster's kubeconfig %s: %w", s.Kubeconfig, err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	c.Config, c.Client = config, client
	c.Kubeconfig, c.KubernetesVersion, c.NodeName = s.Kubeconfig, s.KubernetesVersion, s.NodeName
	c.Emulated, c.EmulatedWhy = s.Node == noNode, s.NodeReason
	c.LogDir, c.CDIDir = s.LogDir, s.CDIDir
	// What helm and kubectl remember goes away with the cluster.
	conf := filepath.Join(s.Dir, "conf")
	c.tools.env = []string{
		"KUBECONFIG=" + s.Kubeconfig, "KUBECACHEDIR=" + filepath.Join(conf, "kubectl"),
		"HELM_CACHE_HOME=" + filepath.Join(conf, "helm"), "HELM_CONFIG_HOME=" + filepath.Join(conf, "helm"),
		"HELM_DATA_HOME=" + filepath.Join(conf, "helm"),
	}
	c.GPUs = &GPUs{tools: c.tools, root: filepath.Join(s.Dir, "driver-root")}
	return nil
}

// Kubectl runs kubectl against the cluster and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := c.tools.run(ctx, nil, "kubectl", args...)
	return string(out), err
}

// KubectlPath is the kubectl that was built with the cluster.
func (c *Cluster) KubectlPath() string { return filepath.Join(c.options.Bin, "kubectl") }

// Root is the repository.
func (c *Cluster) Root() string { return c.options.Root }

// KubeletRoot is the folder below which drivers put their sockets.
func (c *Cluster) KubeletRoot() string { return c.status.KubeletRootDir }

// StateDir is where the plugin keeps what it has prepared, a file for each claim.
func (c *Cluster) StateDir() string {
	return filepath.Join(c.KubeletRoot(), "plugins", DriverName, "claims")
}

// ClaimFiles are the files on the node that exist while the claim is prepared:
// CDI specs and the plugin's state.
func (c *Cluster) ClaimFiles(claimUID string) ([]string, error) {
	var found []string
	for _, dir := range []string{c.CDIDir, c.StateDir()} {
		if _, err := os.ReadDir(dir); err != nil {
			return nil, fmt.Errorf("look for files of claim %s: %w", claimUID, err)
		}
		paths, err := filepath.Glob(filepath.Join(dir, "*"+claimUID+"*"))
		if err != nil {
			return nil, fmt.Errorf("look for files of claim %s: %w", claimUID, err)
		}
		found = append(found, paths...)
	}
	return found, nil
}
