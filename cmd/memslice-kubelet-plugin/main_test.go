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

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/probe"
)

func run(ctx context.Context, args ...string) error {
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return cmd.ExecuteContext(ctx)
}

// Wrong settings end the plugin before it touches anything.
func TestWrongConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodeconfig.yaml")
	const text = "apiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\n---\napiVersion: memslice.dev/v1alpha1\nkind: NodeConfig\ngpus: [{offer: [GPU, Mig]}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"flag":         {[]string{"--node-name=../x"}, `configuration: --node-name: Invalid value: "../x"`},
		"file":         {[]string{"--node-name=n", "--config=" + file}, "configuration: --config " + file + `: document 2: gpus[0].offer[1]: Unsupported value: "Mig": supported values: "Slice", "GPU", "MIG"`},
		"missing file": {[]string{"--node-name=n", "--config=/no/such/file"}, "configuration: --config: open /no/such/file: no such file or directory"},
		"probe":        {[]string{"probe", "--pod-uid=../x"}, `configuration: --pod-uid: Invalid value: "../x"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t.Context(), tc.args...); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got error %v, want one that begins with %q", err, tc.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	place := config.Place{KubeletRootDir: t.TempDir(), PodUID: "u-1"}
	if err := os.MkdirAll(place.PluginDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(config.EnvName("kubelet-root-dir"), place.KubeletRootDir)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() {
		served <- probe.NewServer(map[string]probe.Check{
			probe.Liveness:  func(context.Context) error { return nil },
			probe.Readiness: func(context.Context) error { return errors.New("no driver yet") },
		}).Serve(ctx, place.HealthSocket())
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(time.Minute); run(ctx, "probe", "--pod-uid=u-1") != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the probe finds no server")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := run(ctx, "probe", "--pod-uid=u-1", "--service=readiness"); err == nil || !strings.Contains(err.Error(), "no driver yet") {
		t.Errorf("a plugin that is not ready: got error %v", err)
	}
	if err := run(ctx, "probe", "--pod-uid=u-2", "--timeout=100ms"); err == nil {
		t.Error("the probe of another pod is answered")
	}
}

// A probe has the settings that it uses, and no others.
func TestProbeFlags(t *testing.T) {
	var got []string
	newProbeCommand().LocalFlags().VisitAll(func(f *pflag.Flag) { got = append(got, f.Name) })
	slices.Sort(got)
	if diff := cmp.Diff([]string{"kubelet-root-dir", "pod-uid", "service", "timeout"}, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
}
