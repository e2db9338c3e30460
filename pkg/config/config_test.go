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

package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func parse(t *testing.T, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	cfg := Default()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	if err := FromEnvironment(fs, lookup); err != nil {
		return nil, err
	}
	cfg.Complete()
	return cfg, cfg.Validate()
}

func TestFromEnvironmentLeavesWhatIsNoSetting(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	version, help := fs.Bool("version", false, ""), fs.BoolP("help", "h", false, "")
	lookup := func(string) (string, bool) { return "1.2", true }
	if err := FromEnvironment(fs, lookup); err != nil || *version || *help {
		t.Errorf("got version %t, help %t, error %v, want neither", *version, *help, err)
	}
}

func TestLayers(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		get  func(*Config) string
		want string
	}{
		"default":                      {get: func(c *Config) string { return c.CDIRoot }, want: "/var/run/cdi"},
		"environment over default":     {env: map[string]string{"MEMSLICE_CDI_ROOT": "/etc/cdi"}, get: func(c *Config) string { return c.CDIRoot }, want: "/etc/cdi"},
		"flag over environment":        {env: map[string]string{"MEMSLICE_CDI_ROOT": "/etc/cdi"}, args: []string{"--cdi-root=/run/cdi"}, get: func(c *Config) string { return c.CDIRoot }, want: "/run/cdi"},
		"empty variable is not set":    {env: map[string]string{"MEMSLICE_CDI_ROOT": ""}, get: func(c *Config) string { return c.CDIRoot }, want: "/var/run/cdi"},
		"quantity":                     {args: []string{"--memory-step=0.5Gi"}, get: func(c *Config) string { return c.MemoryStep.String() }, want: "512Mi"},
		"quantity not given":           {env: map[string]string{"MEMSLICE_MEMORY_MIN": ""}, get: func(c *Config) string { return fmt.Sprint(c.MemoryMin) }, want: "<nil>"},
		"quantity in the environment":  {env: map[string]string{"MEMSLICE_MEMORY_MIN": "1G"}, get: func(c *Config) string { return c.MemoryMin.String() }, want: "1G"},
		"procfs":                       {get: func(c *Config) string { return c.ProcRoot }, want: "/proc"},
		"procfs elsewhere":             {env: map[string]string{"MEMSLICE_PROC_ROOT": "/host/proc"}, get: func(c *Config) string { return c.ProcRoot }, want: "/host/proc"},
		"no file of NodeConfigs":       {get: func(c *Config) string { return c.NodeConfig }, want: ""},
		"file of NodeConfigs":          {env: map[string]string{"MEMSLICE_CONFIG": "/etc/memslice/nodeconfig.yaml"}, get: func(c *Config) string { return c.NodeConfig }, want: "/etc/memslice/nodeconfig.yaml"},
		"driver root is seen as it is": {args: []string{"--driver-root=/run/nvidia/driver"}, get: func(c *Config) string { return c.ContainerDriverRoot }, want: "/run/nvidia/driver"},
		"driver root seen elsewhere":   {args: []string{"--driver-root=/run/nvidia/driver", "--container-driver-root=/driver-root"}, get: func(c *Config) string { return c.ContainerDriverRoot }, want: "/driver-root"},
		"duration":                     {env: map[string]string{"MEMSLICE_SCAN_INTERVAL": "1m"}, get: func(c *Config) string { return c.ScanInterval.String() }, want: time.Minute.String()},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := parse(t, tc.env, append(tc.args, "--node-name=node")...)
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.get(cfg); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		args []string
		want string // in the message
	}{
		"no node name":                 {want: "--node-name: Required value"},
		"node name with a path":        {args: []string{"--node-name=../x"}, want: "--node-name: Invalid value"},
		"pod UID with a path":          {args: []string{"--node-name=n", "--pod-uid=../../x"}, want: "--pod-uid: Invalid value"},
		"relative path":                {args: []string{"--node-name=n", "--cdi-root=cdi"}, want: "--cdi-root: Invalid value"},
		"relative root of the kubelet": {args: []string{"--node-name=n", "--kubelet-root-dir=kubelet"}, want: "--kubelet-root-dir: Invalid value"},
		"relative procfs":              {args: []string{"--node-name=n", "--proc-root=proc"}, want: "--proc-root: Invalid value"},
		"no step at all":               {args: []string{"--node-name=n", "--memory-step=0"}, want: "--memory-step: Invalid value"},
		"no minimum":                   {args: []string{"--node-name=n", "--memory-min=0"}, want: "--memory-min: Invalid value"},
		"not a quantity":               {args: []string{"--node-name=n", "--memory-min=lots"}, want: "memory-min"},
		"fraction of a byte":           {args: []string{"--node-name=n", "--memory-step=100m"}, want: "--memory-step: Invalid value"},
		"negative step":                {args: []string{"--node-name=n", "--memory-step=-1Mi"}, want: "--memory-step: Invalid value"},
		"too busy":                     {args: []string{"--node-name=n", "--scan-interval=1ms"}, want: "--scan-interval: Invalid value"},
		"variable that does not parse": {
			env: map[string]string{"MEMSLICE_SCAN_INTERVAL": "soon"}, args: []string{"--node-name=n"},
			want: "environment variable MEMSLICE_SCAN_INTERVAL",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, tc.env, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	cfg := Default()
	got := []string{cfg.DRASocket(), cfg.HealthSocket(), cfg.RegistrationSocket(), cfg.StateDir()}
	cfg.PodUID = "0b7c9a52-4a52-4c2c-9c4c-0d6a5a2a7f11"
	got = append(got, cfg.DRASocket(), cfg.HealthSocket(), cfg.RegistrationSocket())
	want := []string{
		"/var/lib/kubelet/plugins/gpu.memslice.dev/dra.sock",
		"/var/lib/kubelet/plugins/gpu.memslice.dev/health.sock",
		"/var/lib/kubelet/plugins_registry/gpu.memslice.dev-reg.sock",
		"/var/lib/kubelet/plugins/gpu.memslice.dev/claims",
		"/var/lib/kubelet/plugins/gpu.memslice.dev/dra-0b7c9a52-4a52-4c2c-9c4c-0d6a5a2a7f11.sock",
		"/var/lib/kubelet/plugins/gpu.memslice.dev/health-0b7c9a52-4a52-4c2c-9c4c-0d6a5a2a7f11.sock",
		"/var/lib/kubelet/plugins_registry/gpu.memslice.dev-0b7c9a52-4a52-4c2c-9c4c-0d6a5a2a7f11-reg.sock",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
}

// A probe is given the environment of the plugin, and looks for what it needs.
func TestPlaceAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		env    map[string]string
		socket string
		refuse string
	}{
		"as it is by default": {socket: "/var/lib/kubelet/plugins/gpu.memslice.dev/health.sock"},
		"of a pod, among other settings": {
			env:    map[string]string{"MEMSLICE_POD_UID": "u-1", "MEMSLICE_KUBELET_ROOT_DIR": "/data", "MEMSLICE_SCAN_INTERVAL": "soon"},
			socket: "/data/plugins/gpu.memslice.dev/health-u-1.sock",
		},
		"of no pod that there can be": {env: map[string]string{"MEMSLICE_POD_UID": "../x"}, refuse: "--pod-uid: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			place := DefaultPlace()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			place.AddFlags(fs)
			if err := FromEnvironment(fs, func(name string) (string, bool) { v, ok := tc.env[name]; return v, ok }); err != nil {
				t.Fatal(err)
			}
			err := place.Validate()
			if tc.refuse == "" && (err != nil || place.HealthSocket() != tc.socket) {
				t.Errorf("got %s and error %v, want %s", place.HealthSocket(), err, tc.socket)
			}
			if tc.refuse != "" && (err == nil || !strings.Contains(err.Error(), tc.refuse)) {
				t.Errorf("got error %v, want one with %q", err, tc.refuse)
			}
		})
	}
}
