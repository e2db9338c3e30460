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

// Package metrics shows what audits found to Prometheus.
//
// Gauges are those of the last audit and of nothing that has ended: a claim that
// is no longer prepared has none.
package metrics

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/memslice/memslice/pkg/audit"
)

var (
	// A claim can have several devices of one GPU: the index tells them apart.
	deviceLabels = []string{"namespace", "claim", "request", "device", "gpu", "isolation"}

	granted = prometheus.NewDesc("memslice_claim_memory_granted_bytes", "GPU memory that a claim was granted.", deviceLabels, nil)
	used    = prometheus.NewDesc("memslice_claim_memory_used_bytes", "GPU memory that the processes of a claim have.", deviceLabels, nil)
	peak    = prometheus.NewDesc("memslice_claim_memory_peak_bytes", "The most GPU memory that the processes of a claim were seen to have.", deviceLabels, nil)
	over    = prometheus.NewDesc("memslice_claim_over_use", "1 where the processes of a claim have more than it was granted.", deviceLabels, nil)
	foreign = prometheus.NewDesc("memslice_foreign_memory_used_bytes", "GPU memory that processes without a claim have, on GPUs of which claims have something.", []string{"gpu"}, nil)
	audited = prometheus.NewDesc("memslice_last_audit_timestamp_seconds", "When the use of GPU memory was last looked at, in seconds since 1970.", nil, nil)
)

// Metrics is the last snapshot, and what is counted.
type Metrics struct {
	registry *prometheus.Registry
	repaired prometheus.Counter
	overUses prometheus.Counter

	mu   sync.Mutex
	last audit.Snapshot
	over map[string]bool // devices, in the last snapshot
}

// New has its own registry.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{Name: "memslice_limits_restored_total", Help: "Limits of containers that were gone or others and were set again."}),
		overUses: prometheus.NewCounter(prometheus.CounterOpts{Name: "memslice_over_uses_total", Help: "How often a claim began to have more GPU memory than it was granted."}),
		over:     map[string]bool{},
	}
	m.registry.MustRegister(m, m.repaired, m.overUses,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Handler serves the metrics in Prometheus' formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Audited takes a snapshot in the place of the last one.
func (m *Metrics) Audited(s audit.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := map[string]bool{}
	for _, c := range s.Claims {
		for i, d := range c.Devices {
			for _, l := range d.Limits {
				if l.Repaired {
					m.repaired.Inc()
				}
			}
			if name := fmt.Sprintf("%s/%d", c.UID, i); d.Over() {
				if now[name] = true; !m.over[name] {
					m.overUses.Inc()
				}
			}
		}
	}
	m.last, m.over = s, now
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{granted, used, peak, over, foreign, audited} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	s := m.last
	m.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for _, c := range s.Claims {
		for i, d := range c.Devices {
			g := d.Grant
			labels := []string{c.Namespace, c.Name, g.Request, fmt.Sprint(i), g.UUID, string(g.Isolation)}
			gauge(granted, float64(g.Memory), labels...)
			if !d.Known {
				continue
			}
			gauge(used, float64(d.Used), labels...)
			gauge(peak, float64(d.Peak), labels...)
			gauge(over, map[bool]float64{true: 1}[d.Over()], labels...)
		}
	}
	for _, g := range s.GPUs {
		var bytes uint64
		for _, p := range g.Foreign {
			bytes += p.Memory
		}
		gauge(foreign, float64(bytes), g.UUID)
	}
	if !s.Time.IsZero() {
		gauge(audited, float64(s.Time.Unix()))
	}
}
