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

package harness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LogMark is a moment in the plugin's log.
type LogMark struct {
	time   metav1.Time
	offset int // where the log is a file
}

// MarkLog is the present moment.
func (c *Cluster) MarkLog() LogMark {
	mark := LogMark{time: metav1.NewTime(time.Now())}
	if info, err := os.Stat(c.emulatorLog()); err == nil {
		mark.offset = int(info.Size())
	}
	return mark
}

// logSince is what the plugin has logged since, and up to a second before.
func (c *Cluster) logSince(ctx context.Context, mark LogMark) (string, error) {
	if c.Emulated {
		text, err := os.ReadFile(c.emulatorLog())
		if err != nil {
			return "", fmt.Errorf("read the plugin's log: %w", err)
		}
		return string(text[min(mark.offset, len(text)):]), nil
	}
	pod, err := c.PluginPod(ctx)
	if err != nil {
		return "", err
	}
	text, err := c.Client.CoreV1().Pods(Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{SinceTime: &mark.time}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("read the log of pod %s: %w", pod.Name, err)
	}
	return string(text), nil
}

// AwaitLog waits for a line of the plugin's log that has all the words.
func (c *Cluster) AwaitLog(ctx context.Context, mark LogMark, words ...string) error {
	return Await(ctx, fmt.Sprintf("a line with %q in the plugin's log", words), func(ctx context.Context) (string, error) {
		text, err := c.logSince(ctx, mark)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(text) {
			if hasAll(line, words) {
				return "", nil
			}
		}
		return "it ends with\n" + lastLines(text, failureLines), nil
	})
}

// AwaitProblem waits until the plugin says, in its log and as an event on the
// Node, what has all the words, and returns it.
func (c *Cluster) AwaitProblem(ctx context.Context, mark LogMark, words ...string) (string, error) {
	// An event may be an earlier one: the same again makes no other.
	if err := c.AwaitLog(ctx, mark, words...); err != nil {
		return "", err
	}
	var problem string
	err := Await(ctx, fmt.Sprintf("an event on Node %s that has %q", c.NodeName, words), func(ctx context.Context) (string, error) {
		problems, err := c.nodeProblems(ctx)
		if err != nil {
			return "", err
		}
		at := slices.IndexFunc(problems, func(p string) bool { return hasAll(p, words) })
		if at < 0 {
			return "its events are " + strings.Join(problems, "; "), nil
		}
		problem = problems[at]
		return "", nil
	})
	return problem, err
}

// nodeProblems are the messages of the plugin's events on the Node, the latest
// first.
func (c *Cluster) nodeProblems(ctx context.Context) ([]string, error) {
	list, err := c.Client.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + c.NodeName,
	})
	if err != nil {
		return nil, fmt.Errorf("list the events of Node %s: %w", c.NodeName, err)
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	var problems []string
	for _, event := range list.Items {
		if event.ReportingController == DriverName {
			problems = append(problems, event.Message)
		}
	}
	return problems, nil
}

func hasAll(text string, words []string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
