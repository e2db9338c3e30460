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

package metrics

import (
	"errors"
	"io"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/golden"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/isolation"
)

func device(uuid string, granted int64, used, peak uint64) audit.Device {
	return audit.Device{
		Grant: gpu.Grant{Request: "gpu", UUID: uuid, Form: gpu.Slice, Memory: granted, Isolation: gpu.IsolationCgroup},
		Used:  used, Peak: peak, Known: true,
	}
}

func snapshot() audit.Snapshot {
	unknown := device("GPU-1", 4<<30, 0, 0)
	unknown.Known = false
	repaired := device("GPU-0", 1<<30, 1, 2)
	repaired.Limits = []isolation.Limit{{Repaired: true}, {Err: errors.New("lost")}}
	return audit.Snapshot{
		Time: time.Unix(1e9, 0),
		Claims: []audit.Claim{
			{UID: "a", Namespace: "ns", Name: "fits", Devices: []audit.Device{device("GPU-0", 4<<30, 3<<30, 4<<30), unknown}},
			{UID: "b", Namespace: "ns", Name: "over", Devices: []audit.Device{device("GPU-0", 1<<30, 2<<30, 2<<30)}},
			{UID: "c", Namespace: "ns", Name: "repaired", Devices: []audit.Device{repaired}},
		},
		GPUs: []audit.GPU{{UUID: "GPU-0", Foreign: []audit.Foreign{{PID: 1, Memory: 5}, {PID: 2, Memory: 6}}}, {UUID: "GPU-1"}},
	}
}

// exposition is what Prometheus reads of this driver.
func exposition(t *testing.T, m *Metrics) string {
	t.Helper()
	server := httptest.NewServer(m.Handler())
	defer server.Close()
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var ours strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "memslice_") {
			ours.WriteString(line)
		}
	}
	return ours.String()
}

func TestExposition(t *testing.T) {
	m := New()
	m.Audited(snapshot())
	golden.Check(t, filepath.Join("testdata", "exposition.txt"), []byte(exposition(t, m)))
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What has ended is no longer shown, and what goes on counts once.
func TestNothingStays(t *testing.T) {
	m := New()
	m.Audited(snapshot())
	m.Audited(snapshot())
	if got := testutil.ToFloat64(m.overUses); got != 1 {
		t.Errorf("over-use that goes on was counted %v times", got)
	}
	if got := testutil.ToFloat64(m.repaired); got != 2 {
		t.Errorf("%v repairs, want one in each audit", got)
	}
	m.Audited(audit.Snapshot{Time: time.Unix(2e9, 0)})
	if text := exposition(t, m); strings.Contains(text, "{") {
		t.Errorf("claims that have ended are shown:\n%s", text)
	}
	m.Audited(snapshot())
	if got := testutil.ToFloat64(m.overUses); got != 2 {
		t.Errorf("over-use that began again was counted %v times in all", got)
	}
}

func TestBeforeTheFirstAudit(t *testing.T) {
	if text := exposition(t, New()); strings.Contains(text, "memslice_last_audit") || strings.Contains(text, "{") {
		t.Errorf("got\n%s", text)
	}
}
