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

// Package chart_test renders the memslice chart with the real Helm and checks
// what comes out: against golden files, the API's types, the plugin's own
// flags, and the CEL that the API server and the scheduler would run.
//
// What needs a running cluster is for e2e.
package chart_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

const chart = "memslice"

// installation is a release of the chart; the zero value is the one that the
// README installs.
type installation struct {
	release   string
	namespace string
	args      []string // further arguments of helm, such as --set
}

// set is an installation with values as --set takes them.
func set(values ...string) installation {
	var i installation
	for _, v := range values {
		i.args = append(i.args, "--set", v)
	}
	return i
}

// helm runs one of Helm's commands without regard to the user's own
// configuration and clusters.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary := os.Getenv("HELM")
	if binary == "" {
		binary = filepath.Join("..", "..", "_output", "bin", "helm")
	}
	if _, err := exec.LookPath(binary); err != nil {
		t.Fatalf("These tests need Helm 4: run `make _output/bin/helm` once at the repository's root, or set HELM to its absolute path: %v", err)
	}
	// A cached result is used again unless a file has changed that the test
	// itself looked at; Helm reads these in a process of its own.
	for _, dir := range []string{chart, "testdata"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null",
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("helm %s: %w: %s%s", strings.Join(args, " "), err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// template renders the chart's manifests.
func template(t *testing.T, i installation) (string, error) {
	t.Helper()
	release, namespace := i.release, i.namespace
	if release == "" {
		release = "memslice"
	}
	if namespace == "" {
		namespace = "memslice"
	}
	args := []string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.37.2"}
	return helm(t, append(args, i.args...)...)
}

// render returns the chart's objects as the API server would decode them: an
// unknown or doubled field is an error.
func render(t *testing.T, i installation) []runtime.Object {
	t.Helper()
	manifests, err := template(t, i)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, manifests)
}

func decode(t *testing.T, manifests string) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(manifests)))
	var objects []runtime.Object
	for {
		document := make([]byte, len(manifests)+1)
		n, err := documents.Read(document)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("Split the manifests: %v", err)
		}
		object, _, err := decoder.Decode(document[:n], nil, nil)
		if err != nil {
			t.Fatalf("Decode: %v\n%s", err, document[:n])
		}
		objects = append(objects, object)
	}
}

// all picks the objects of one type.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, o := range objects {
		if o, ok := o.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// only is the one object of its type.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	found := all[T](objects)
	if len(found) != 1 {
		var zero T
		t.Fatalf("The chart renders %d objects of type %T, want 1", len(found), zero)
	}
	return found[0]
}

// named is the object of its type whose name ends like that.
func named[T interface {
	runtime.Object
	metav1.Object
}](t *testing.T, objects []runtime.Object, suffix string) T {
	t.Helper()
	var found []T
	for _, o := range all[T](objects) {
		if strings.HasSuffix(o.GetName(), suffix) {
			found = append(found, o)
		}
	}
	if len(found) != 1 {
		var zero T
		t.Fatalf("The chart renders %d objects of type %T named …%s, want 1", len(found), zero, suffix)
	}
	return found[0]
}
