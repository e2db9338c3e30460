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
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/state"
)

func reserved() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "claim", UID: "uid"},
		Status: resourceapi.ResourceClaimStatus{ReservedFor: []resourceapi.ResourceClaimConsumerReference{
			{APIGroup: "", Resource: "pods", Name: "one", UID: "pod-1"},
			{APIGroup: "batch.example.com", Resource: "pods", Name: "no pod", UID: "pod-2"},
			{APIGroup: "", Resource: "pods", Name: "three", UID: "pod-3"},
		}},
	}
}

func TestReservedFor(t *testing.T) {
	record := state.Record{UID: "uid", Namespace: "ns", Name: "claim"}
	other, gone := record, record
	other.UID, gone.Name = "uid of a former claim", "gone"
	away := errors.New("away")
	for name, tc := range map[string]struct {
		record state.Record
		pod    string
		fail   error
		want   bool
	}{
		"one of its pods":              {record: record, pod: "pod-3", want: true},
		"another pod":                  {record: record, pod: "pod-4"},
		"something that is no pod":     {record: record, pod: "pod-2"},
		"no pod":                       {record: record},
		"another claim of that name":   {record: other, pod: "pod-1"},
		"a claim that is gone":         {record: gone, pod: "pod-1"},
		"the API server does not tell": {record: record, pod: "pod-1", fail: away},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(reserved())
			client.PrependReactor("get", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.fail != nil, nil, tc.fail
			})
			got, err := reservedFor(client)(t.Context(), tc.record, tc.pod)
			if got != tc.want || !errors.Is(err, tc.fail) {
				t.Errorf("got %t, %v", got, err)
			}
		})
	}
	pods, err := podsOf(fake.NewClientset(reserved()))(t.Context(), record)
	if want := []audit.Pod{{UID: "pod-1", Name: "one"}, {UID: "pod-3", Name: "three"}}; err != nil || !slices.Equal(pods, want) {
		t.Errorf("its pods are %v, %v, want %v", pods, err, want)
	}
}

// An address that another process has is waited for.
func TestServeMetrics(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := first.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serveMetrics(ctx, address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") }))
	}()
	first.Close()
	for {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(text) != "metrics" {
			t.Errorf("got %q, %v", text, err)
		}
		break
	}
	if response, err := http.Get("http://" + address + "/debug"); err != nil || response.StatusCode != http.StatusNotFound {
		t.Errorf("another path: %v, %v", response, err)
	} else {
		response.Body.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("asked to stop, it ended with %v", err)
	}
	if err := serveMetrics(t.Context(), "", nil); err != nil {
		t.Errorf("with no address: %v", err)
	}
}
