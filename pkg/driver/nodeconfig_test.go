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
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const twoDocuments = `
apiVersion: memslice.dev/v1alpha1
kind: NodeConfig
nodeSelector: {matchLabels: {pool: small}}
defaults: {ranks: 1}
---
apiVersion: memslice.dev/v1alpha1
kind: NodeConfig
defaults: {ranks: 2}
`

func TestNodeConfig(t *testing.T) {
	cfg := testConfig(t)
	cfg.NodeConfig = filepath.Join(t.TempDir(), "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(cfg.NodeConfig, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(twoDocuments)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: cfg.NodeName}}
	client := fake.NewClientset(node)
	down := errors.New("the API server is down")
	var answer error
	client.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
	clock := time.Unix(0, 0)
	n := &nodeConfig{cfg: cfg, client: client, now: func() time.Time { return clock }}

	expect := func(step string, ranks int32, wantErr bool) {
		t.Helper()
		config, err := n.load(t.Context())
		if (err != nil) != wantErr {
			t.Fatalf("%s: got error %v, want one: %t", step, err, wantErr)
		}
		if err == nil && *config.Defaults.Ranks != ranks {
			t.Errorf("%s: got the document with %d ranks, want that with %d", step, *config.Defaults.Ranks, ranks)
		}
	}
	answer = down
	expect("labels that were never known", 0, true)
	answer = nil
	expect("no label", 2, false)

	node.Labels = map[string]string{"pool": "small"}
	if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), node, ""); err != nil {
		t.Fatal(err)
	}
	expect("a label that is not looked for yet", 2, false)
	clock = clock.Add(cfg.ReconcileInterval)
	expect("a label", 1, false)
	answer = down
	clock = clock.Add(cfg.ReconcileInterval)
	expect("labels that were known", 1, false)
	write("kind: Nonsense")
	expect("a wrong file", 0, true)
	write(twoDocuments)
	expect("a file put right", 1, false)
}
