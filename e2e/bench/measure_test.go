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
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func onNode(name, node, message string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "2"},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Message: message}}},
	}
}

// awaiting lets awaitBound see pods, and ends its time once it has.
func awaiting(t *testing.T, seen ...*corev1.Pod) (err error) {
	synctest.Test(t, func(t *testing.T) {
		events := watch.NewFake()
		client := fake.NewClientset()
		client.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(events, nil))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for _, p := range seen {
				events.Modify(p)
			}
			synctest.Wait()
			cancel()
		}()
		err = (&bench{client: client}).awaitBound(ctx, "1", []string{"a", "b"})
	})
	return err
}

func TestAwaitBound(t *testing.T) {
	err := awaiting(t,
		onNode("a", "", ""),
		onNode("first", "n", ""), // from before
		onNode("b", "n", ""),
		onNode("b", "n", ""),
		onNode("a", "n", ""),
	)
	if err != nil {
		t.Error(err)
	}
}

func TestAwaitBoundTellsWhoIsLeft(t *testing.T) {
	for name, tc := range map[string]struct {
		seen []*corev1.Pod
		want string
	}{
		"no room":          {[]*corev1.Pod{onNode("a", "n", ""), onNode("b", "", "0/2 nodes are available")}, "1 were not placed, such as b: 0/2 nodes are available"},
		"the other, twice": {[]*corev1.Pod{onNode("b", "n", ""), onNode("b", "n", "")}, "1 were not placed, such as a: it is not there"},
		"never created":    {[]*corev1.Pod{onNode("b", "n", "")}, "1 were not placed, such as a: it is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			err := awaiting(t, tc.seen...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestEachStopsAtAnError(t *testing.T) {
	broken := errors.New("it broke")
	err := each(context.Background(), []int{1, 2, 3}, func(ctx context.Context, n int) error {
		if n == 1 {
			return broken
		}
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
}
