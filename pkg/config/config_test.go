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
		"no node name":          {want: "--node-name: Required value"},
		"node name with a path": {args: []string{"--node-name=../x"}, want: "--node-name: Invalid value"},
		"pod UID with a path":   {args: []string{"--node-name=n", "--pod-uid=../../x"}, want: "--pod-uid: Invalid value"},
		"relative path":         {args: []string{"--node-name=n", "--cdi-root=cdi"}, want: "--cdi-root: Invalid value"},
		"not a quantity":        {args: []string{"--node-name=n", "--memory-min=lots"}, want: "memory-min"},
		"fraction of a byte":    {args: []string{"--node-name=n", "--memory-step=100m"}, want: "--memory-step: Invalid value"},
		"negative step":         {args: []string{"--node-name=n", "--memory-step=-1Mi"}, want: "--memory-step: Invalid value"},
		"too busy":              {args: []string{"--node-name=n", "--scan-interval=1ms"}, want: "--scan-interval: Invalid value"},
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
