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
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/fake"
)

func TestReportOnNode(t *testing.T) {
	for name, tc := range map[string]struct{ problem, want string }{
		"as it is": {"GPU GPU-1 is not offered: 100%", "GPU GPU-1 is not offered: 100%"},
		"cut":      {strings.Repeat("é", 600), strings.Repeat("é", 510) + " …"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			report := reportOnNode(newRecorder(t.Context(), client, "node-1"), "node-1")
			report("another problem of the same kind")
			report(tc.problem)
			event := awaitEvents(t, client, 2)[1]
			if event.Message != tc.want || len(event.Message) > maxMessage || !utf8.ValidString(event.Message) {
				t.Errorf("the event says %q, want %q", event.Message, tc.want)
			}
			if event.InvolvedObject.Kind != "Node" || event.InvolvedObject.Name != "node-1" || event.Type != "Warning" || event.Reason != reasonGPUProblem {
				t.Errorf("the event is %s %s about %s %s", event.Type, event.Reason, event.InvolvedObject.Kind, event.InvolvedObject.Name)
			}
			if event.Namespace != metav1.NamespaceDefault {
				t.Errorf("the event is in namespace %q, where the plugin may not write it", event.Namespace)
			}
		})
	}
}

// As many problems as a node with many GPUs can have are all told.
func TestReportManyOnNode(t *testing.T) {
	const problems = 64
	client := fake.NewClientset()
	report := reportOnNode(newRecorder(t.Context(), client, "node-1"), "node-1")
	told := map[string]bool{}
	for i := range problems {
		report(fmt.Sprintf("problem %d", i))
	}
	for _, event := range awaitEvents(t, client, problems) {
		told[event.Message] = true
	}
	if len(told) != problems {
		t.Errorf("%d problems are told of %d: %v", len(told), problems, told)
	}
}

// awaitEvents waits for a number of events, the oldest first.
func awaitEvents(t *testing.T, client *fake.Clientset, n int) []corev1.Event {
	t.Helper()
	var events []corev1.Event
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Events("").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) < n {
			return false, err
		}
		events = list.Items
		return true, nil
	})
	if err != nil {
		t.Fatal("waiting for the events: ", err)
	}
	// Their names end in the time.
	slices.SortFunc(events, func(a, b corev1.Event) int { return strings.Compare(a.Name, b.Name) })
	return events
}
