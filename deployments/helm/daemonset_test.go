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

package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/memslice/memslice/pkg/config"
)

// The plugin must understand each setting that the chart hands it, or the pod
// would crash.
func TestEnvironmentIsThePlugins(t *testing.T) {
	for _, i := range []installation{{}, {args: []string{"--values", "testdata/everything.values.yaml"}}} {
		container := pluginContainer(t, i)
		env := map[string]string{}
		for _, e := range container.Env {
			if strings.HasPrefix(e.Name, config.EnvPrefix) {
				env[e.Name] = e.Value
				if e.ValueFrom != nil {
					env[e.Name] = "from-the-pod"
				}
			}
		}
		cfg := config.Default()
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		cfg.AddFlags(flags)
		unknown := env
		err := config.FromEnvironment(flags, func(name string) (string, bool) {
			value, ok := env[name]
			return value, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Complete()
		if err := cfg.Validate(); err != nil {
			t.Errorf("The plugin refuses the chart's settings: %v", err)
		}
		flags.VisitAll(func(f *pflag.Flag) { delete(unknown, config.EnvName(f.Name)) })
		for name := range unknown {
			t.Errorf("The plugin has no flag for %s", name)
		}
	}
}

// Where the chart draws the line for kubeletRootDir is where the plugin's
// sockets stop to fit into a socket address (107 bytes on Linux).
func TestKubeletRootDirLimit(t *testing.T) {
	for length, fits := range map[int]bool{33: true, 34: false} {
		root := "/" + strings.Repeat("k", length-1)
		cfg := config.Default()
		cfg.KubeletRootDir, cfg.PodUID = root, "01234567-89ab-cdef-0123-456789abcdef"
		longest := max(len(cfg.HealthSocket()), len(cfg.DRASocket()), len(cfg.RegistrationSocket()))
		if got := longest <= 107; got != fits {
			t.Errorf("With %d characters the longest socket path has %d bytes", length, longest)
		}
		_, err := template(t, set("kubeletRootDir="+root))
		if fits != (err == nil) {
			t.Errorf("kubeletRootDir of %d characters: %v", length, err)
		}
		if !fits && !strings.Contains(err.Error(), "has 34 characters; the plugin's sockets below it fit into a socket address only up to 33") {
			t.Errorf("The message does not say what is wrong: %v", err)
		}
	}
}

// The kubelet and the container runtime use the paths that the plugin tells
// them.
func TestSharedPathsAreTheSameInside(t *testing.T) {
	i := installation{args: []string{"--values", "testdata/everything.values.yaml"}}
	pod := only[*appsv1.DaemonSet](t, render(t, i)).Spec.Template.Spec
	inside := map[string]corev1.VolumeMount{}
	for _, m := range pod.Containers[0].VolumeMounts {
		inside[m.Name] = m
	}
	want := map[string]string{
		"/data/kubelet/plugins_registry":         "/data/kubelet/plugins_registry",
		"/data/kubelet/plugins/gpu.memslice.dev": "/data/kubelet/plugins/gpu.memslice.dev",
		"/etc/cdi":                               "/etc/cdi",
		"/run/nvidia/driver":                     "/driver-root",
		"/dev":                                   "/dev",
		"/sys/fs/cgroup":                         "/host/cgroup",
	}
	for _, v := range pod.Volumes {
		if v.HostPath == nil {
			continue
		}
		path, ok := want[v.HostPath.Path]
		if mount := inside[v.Name]; !ok || mount.MountPath != path {
			t.Errorf("The node's %s is mounted at %q, want %q", v.HostPath.Path, mount.MountPath, path)
		}
		delete(want, v.HostPath.Path)
	}
	for path := range want {
		t.Errorf("The node's %s is not mounted", path)
	}
	driver := inside["driver-root"]
	if !driver.ReadOnly || driver.MountPropagation == nil || *driver.MountPropagation != corev1.MountPropagationHostToContainer {
		t.Errorf("The driver root is mounted with readOnly %v and propagation %v, want read-only and HostToContainer", driver.ReadOnly, driver.MountPropagation)
	}
}

func TestPodIsLockedDown(t *testing.T) {
	pod := only[*appsv1.DaemonSet](t, render(t, installation{})).Spec.Template.Spec
	// The process ids that the driver tells are those of the host.
	if pod.HostNetwork || !pod.HostPID || pod.HostIPC {
		t.Error("The pod uses another namespace of the host than that of processes, or not that one")
	}
	container := pod.Containers[0]
	if len(container.Ports) > 0 {
		t.Error("The container opens a port")
	}
	for _, m := range container.VolumeMounts {
		if m.Name == "cgroup" && !m.ReadOnly {
			t.Error("The host's cgroups are writable")
		}
	}
	if c := container.SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
		t.Error("The root file system is writable")
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": container.StartupProbe, "liveness": container.LivenessProbe, "readiness": container.ReadinessProbe,
	} {
		if probe == nil || probe.Exec == nil {
			t.Errorf("The %s probe runs no command", name)
		}
	}
}

// A port of the host's network would keep an update's second pod from being placed.
func TestMetricsPort(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want int
	}{
		{name: "off", want: 0},
		{name: "on", args: []string{"kubeletPlugin.metricsAddress=:9400"}, want: 9400},
		{name: "in the host's network", args: []string{"kubeletPlugin.metricsAddress=127.0.0.1:9400", "kubeletPlugin.hostNetwork=true"}, want: 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			ports := pluginContainer(t, set(test.args...)).Ports
			if test.want == 0 && len(ports) > 0 || test.want != 0 && (len(ports) != 1 || int(ports[0].ContainerPort) != test.want) {
				t.Errorf("The ports are %v, want %d", ports, test.want)
			}
		})
	}
}

func TestUpdateStrategy(t *testing.T) {
	onDelete := only[*appsv1.DaemonSet](t, render(t, set("kubeletPlugin.updateStrategy.type=OnDelete"))).Spec.UpdateStrategy
	if onDelete.Type != appsv1.OnDeleteDaemonSetStrategyType || onDelete.RollingUpdate != nil {
		t.Errorf("OnDelete renders %v, which the API refuses", onDelete)
	}
	rolling := only[*appsv1.DaemonSet](t, render(t, installation{})).Spec.UpdateStrategy.RollingUpdate
	if rolling.MaxSurge.IntValue() != 1 || rolling.MaxUnavailable.IntValue() != 0 {
		t.Errorf("By default %v may surge and %v be unavailable, want 1 and 0", rolling.MaxSurge, rolling.MaxUnavailable)
	}
}

// The programs that the pod runs are those that the image has.
func TestProgramsAreInTheImage(t *testing.T) {
	dockerfile, err := os.ReadFile(filepath.Join("..", "container", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var inImage []string
	for line := range strings.Lines(string(dockerfile)) {
		words := strings.Fields(line)
		if len(words) > 3 && words[0] == "COPY" && words[1] == "--from=build" {
			for _, program := range words[2 : len(words)-1] {
				inImage = append(inImage, filepath.Join(words[len(words)-1], filepath.Base(program)))
			}
		}
	}
	container := pluginContainer(t, installation{})
	programs := []string{
		container.Command[0], container.StartupProbe.Exec.Command[0],
		container.LivenessProbe.Exec.Command[0], container.ReadinessProbe.Exec.Command[0],
	}
	for _, e := range container.Env {
		if e.Name == config.EnvName("nvidia-cdi-hook") {
			programs = append(programs, e.Value)
		}
	}
	if len(programs) != 5 {
		t.Error("The plugin is not told where nvidia-cdi-hook is")
	}
	for _, program := range programs {
		if !slices.Contains(inImage, program) {
			t.Errorf("The pod runs %s, the image has %v", program, inImage)
		}
	}
}

func pluginContainer(t *testing.T, i installation) corev1.Container {
	t.Helper()
	containers := only[*appsv1.DaemonSet](t, render(t, i)).Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("The pod has %d containers, want 1", len(containers))
	}
	return containers[0]
}
