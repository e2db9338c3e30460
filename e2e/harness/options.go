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

// Package harness puts memslice on a local cluster with simulated GPUs, and
// looks at what pods get there. The demo and the end-to-end tests stand on it.
//
// It drives the programs of this repository as a user would: localcluster,
// fakegpu, helm and kubectl. It knows what memslice promises to users, but none
// of memslice's code.
package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// Options say where things are and what to bring up. Every path is absolute
// after Complete.
type Options struct {
	Root   string // the repository
	Bin    string // built programs
	Images string // built container images
	State  string // the cluster's folder

	// Node is what runs pods: NodeAuto, NodeReal or NodeEmulated.
	Node string
	// Preset names the GPUs to simulate. Empty: those that are there, and
	// DefaultPreset where there are none.
	Preset string
}

// What runs the pods.
const (
	NodeAuto     = "auto"     // real if this machine can, else emulated
	NodeReal     = "real"     // a kubelet and containerd
	NodeEmulated = "emulated" // no containers: see e2e/kubeletemu
)

// DefaultPreset is what the quickstart is written for.
const DefaultPreset = "h100x8-r615"

// envPrefix begins the environment variable of each option.
const envPrefix = "MEMSLICE_E2E_"

// NewOptions returns the defaults, with what the environment overrides.
func NewOptions(lookup func(string) (string, bool)) Options {
	o := Options{Node: NodeAuto}
	for name, value := range o.fields() {
		if text, ok := lookup(envPrefix + strings.ToUpper(name)); ok && text != "" {
			*value = text
		}
	}
	return o
}

func (o *Options) fields() map[string]*string {
	return map[string]*string{
		"root": &o.Root, "bin": &o.Bin, "images": &o.Images, "state": &o.State, "node": &o.Node, "preset": &o.Preset,
	}
}

// AddFlags binds o to flags whose defaults are the present values.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Root, "root", o.Root, "the repository (default: the one around the working directory)")
	fs.StringVar(&o.Bin, "bin", o.Bin, "folder of the built programs (default _output/bin in the repository)")
	fs.StringVar(&o.Images, "images", o.Images, "folder of the built images (default _output/images in the repository)")
	fs.StringVar(&o.State, "state", o.State, "folder of the cluster (default _output/cluster in the repository)")
	fs.StringVar(&o.Node, "node", o.Node, "what runs the pods: auto, real or emulated (no containers)")
	fs.StringVar(&o.Preset, "preset", o.Preset, "GPUs to simulate, see 'fakegpu init --help' (default: those that are there, else "+DefaultPreset+")")
}

// Complete fills in the defaults that depend on others, and checks the result.
func (o *Options) Complete() error {
	if o.Node != NodeAuto && o.Node != NodeReal && o.Node != NodeEmulated {
		return fmt.Errorf("--node=%s: must be %s, %s or %s", o.Node, NodeAuto, NodeReal, NodeEmulated)
	}
	if o.Root == "" {
		root, err := findRoot()
		if err != nil {
			return err
		}
		o.Root = root
	}
	for path, below := range map[*string]string{&o.Root: "", &o.Bin: "bin", &o.Images: "images", &o.State: "cluster"} {
		if *path == "" {
			*path = filepath.Join(o.Root, "_output", below)
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("find %s: %w", *path, err)
		}
		*path = absolute
	}
	return nil
}

// findRoot goes up from the working directory to the root module.
func findRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/memslice/memslice\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a clone of memslice: change into one or give --root", start)
		}
	}
}
