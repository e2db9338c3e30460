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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nowhere, as a label that no node has, keeps the plugin away from all.
const nowhere = "e2e.memslice.dev/nowhere"

// StopPlugin returns when no plugin runs, until StartPlugin.
func (c *Cluster) StopPlugin(ctx context.Context) error {
	pod, err := c.PluginPod(ctx)
	if err != nil {
		return err
	}
	if err := c.selectNodes(ctx, `"true"`); err != nil {
		return err
	}
	return c.AwaitGone(ctx, Namespace, pod.Name, pod.UID)
}

// StartPlugin undoes StopPlugin. It does nothing where a plugin runs.
func (c *Cluster) StartPlugin(ctx context.Context) error {
	if err := c.selectNodes(ctx, "null"); err != nil {
		return err
	}
	return c.AwaitPlugin(ctx)
}

func (c *Cluster) selectNodes(ctx context.Context, value string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, nowhere, value)
	_, err := c.Client.AppsV1().DaemonSets(Namespace).Patch(ctx, pluginName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("change where the plugin runs: %w", err)
	}
	return nil
}

// PluginProcess is a process of the plugin.
type PluginProcess struct {
	cluster    *Cluster
	pid        int
	registered int // how often plugins have, on a node without containers
}

// Plugin finds the process that serves the node.
func (c *Cluster) Plugin(ctx context.Context) (*PluginProcess, error) {
	pid, err := c.pluginPID(ctx)
	if err != nil {
		return nil, err
	}
	return &PluginProcess{cluster: c, pid: pid, registered: c.registrations()}, nil
}

// Kill ends the process with no chance to tidy up.
func (p *PluginProcess) Kill() error {
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the plugin (process %d): %w", p.pid, err)
	}
	return nil
}

// AwaitNext returns when another process serves the node, after Kill.
func (p *PluginProcess) AwaitNext(ctx context.Context) error {
	if p.cluster.Emulated {
		return p.cluster.awaitRegistration(ctx, p.registered)
	}
	// The kubelet starts the container again, the second time only after a
	// while. A new pod need not wait.
	return p.cluster.RestartPlugin(ctx)
}

func (c *Cluster) pluginPID(ctx context.Context) (int, error) {
	if c.Emulated {
		pid, err := lockedPID(c.emulatorPIDFile())
		if err != nil {
			return 0, err
		}
		return findProcess(pluginProgram, "stat", fmt.Sprintf(" %d ", pid))
	}
	pod, err := c.PluginPod(ctx)
	if err != nil {
		return 0, err
	}
	if len(pod.Status.ContainerStatuses) != 1 {
		return 0, errors.New("the plugin has no container: " + Describe(pod))
	}
	_, id, ok := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	if !ok {
		return 0, errors.New("the plugin's container does not run: " + Describe(pod))
	}
	return findProcess(pluginProgram, "cgroup", id)
}

// findProcess looks for a program whose file in /proc has a word. The plugin's
// probes are the same program in the same container; they have an argument that
// says so.
func findProcess(program, file, word string) (int, error) {
	paths, err := filepath.Glob(filepath.Join("/proc", "[0-9]*", "cmdline"))
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		// A process that ends meanwhile has no file, and is not the one.
		command, _ := os.ReadFile(path)
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(path), file))
		arguments := strings.Split(string(command), "\x00")
		if filepath.Base(arguments[0]) == program && !slices.Contains(arguments, "probe") && strings.Contains(string(text), word) {
			return strconv.Atoi(filepath.Base(filepath.Dir(path)))
		}
	}
	return 0, fmt.Errorf("no process %s has %q in its /proc file %s", program, word, file)
}
