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
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/memslice/memslice/pkg/gpu"
)

const (
	// reasonGPUProblem is the reason of events on the Node.
	reasonGPUProblem = "GPUProblem"
	// maxMessage is the API's limit on the text of an event, in bytes.
	maxMessage = 1024
)

// manyProblems has room for a problem of each GPU, again and again: by default an
// object gets 25 events and then one in five minutes, and of ten with one reason
// only the latest is told. Each problem is reported when it appears only.
var manyProblems = record.CorrelatorOptions{BurstSize: 200, QPS: 0.1, MaxEvents: 200}

// newRecorder records events without waiting for the API server.
func newRecorder(ctx context.Context, client kubernetes.Interface, node string) record.EventRecorder {
	// Not the recorder for events.k8s.io, which takes two events that differ in
	// nothing but their text for one, with the text of the first.
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(manyProblems))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: gpu.DriverName, Host: node})
}

// reportOnNode returns what tells those who look at the Node of a problem with
// its GPUs.
func reportOnNode(recorder record.EventRecorder, node string) func(problem string) {
	// The kubelet's events name the Node's UID in the same way.
	about := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)}
	return func(problem string) {
		if len(problem) > maxMessage {
			const more = " …"
			problem = strings.ToValidUTF8(problem[:maxMessage-len(more)], "") + more
		}
		recorder.Event(about, corev1.EventTypeWarning, reasonGPUProblem, problem)
	}
}
