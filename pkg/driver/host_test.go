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
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memslice/memslice/pkg/config"
)

// testConfig is a node that has a kubelet, and a hook to install.
func testConfig(t *testing.T) *config.Config {
	t.Helper()
	// Socket paths are short, names of tests are not.
	root, err := os.MkdirTemp("", "memslice")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	cfg := config.Default()
	cfg.NodeName = "node"
	cfg.KubeletRootDir = filepath.Join(root, "kubelet")
	cfg.CDIRoot = filepath.Join(root, "cdi")
	cfg.DriverRoot = filepath.Join(root, "driver")
	cfg.NVIDIACDIHook = filepath.Join(root, "nvidia-hook")
	cfg.Hook = filepath.Join(root, "hook")
	cfg.Complete()
	if err := os.MkdirAll(cfg.RegistryDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{cfg.NVIDIACDIHook, cfg.Hook} {
		if err := os.WriteFile(hook, []byte("hook 1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

func TestPrepareHost(t *testing.T) {
	cfg := testConfig(t)
	for _, content := range []string{"hook 1", "hook 1", "hook 2"} {
		for _, hook := range []string{cfg.NVIDIACDIHook, cfg.Hook} {
			if err := os.WriteFile(hook, []byte(content+" of "+hook), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := prepareHost(cfg); err != nil {
			t.Fatal(err)
		}
		for hook, at := range map[string]string{cfg.NVIDIACDIHook: cfg.HostCDIHook(), cfg.Hook: cfg.HostHook()} {
			installed, err := os.ReadFile(at)
			if want := content + " of " + hook; err != nil || string(installed) != want {
				t.Fatalf("the installed hook is %q (%v), want %q", installed, err, want)
			}
			if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o755 {
				t.Fatalf("the installed hook has mode %v (%v): the runtime could not run it", info.Mode(), err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(cfg.PluginDir(), ".hook-*")); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func TestPrepareHostRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*config.Config)
		want  string
	}{
		"no kubelet there": {func(c *config.Config) { c.KubeletRootDir += "-elsewhere" }, "--kubelet-root-dir="},
		"no hook":          {func(c *config.Config) { c.NVIDIACDIHook += "-elsewhere" }, "--nvidia-cdi-hook"},
		"no other hook":    {func(c *config.Config) { c.Hook += "-elsewhere" }, "--hook"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			tc.spoil(cfg)
			if err := prepareHost(cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestRemoveDeadSockets(t *testing.T) {
	cfg := testConfig(t)
	if err := os.MkdirAll(cfg.PluginDir(), 0o755); err != nil {
		t.Fatal(err)
	}
	listen := func(dir, name string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		return l
	}
	dead := []*net.UnixListener{
		listen(cfg.RegistryDir(), "gpu.memslice.dev-dead-reg.sock"),
		listen(cfg.PluginDir(), "dra-dead.sock"),
		listen(cfg.PluginDir(), "health-dead.sock"),
	}
	alive := []*net.UnixListener{
		listen(cfg.RegistryDir(), "gpu.memslice.dev-alive-reg.sock"),
		listen(cfg.PluginDir(), "dra-alive.sock"),
	}
	foreign := listen(cfg.RegistryDir(), "other.example.com-reg.sock")
	for _, l := range append(dead, foreign) {
		l.Close()
	}
	if err := prepareHost(cfg); err != nil {
		t.Fatal(err)
	}
	for _, l := range dead {
		if _, err := os.Lstat(l.Addr().String()); !os.IsNotExist(err) {
			t.Errorf("%s is still there (%v)", l.Addr(), err)
		}
	}
	for _, l := range append(alive, foreign) {
		if _, err := os.Lstat(l.Addr().String()); err != nil {
			t.Errorf("%s was removed: %v", l.Addr(), err)
		}
	}
}
