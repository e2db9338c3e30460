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
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/audit"
	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/inventory"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/metrics"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/report"
	"github.com/memslice/memslice/pkg/state"
)

// proof is what finds out whether claims have what they were granted, and what
// tells of it.
type proof struct {
	auditor  *audit.Auditor
	reporter *report.Reporter
	metrics  *metrics.Metrics
}

func newProof(cfg *config.Config, client kubernetes.Interface, store *state.Store, devices *inventory.Inventory, nvml *nvidia.Client, finder container.Finder, confiner *isolation.Confiner, recorder record.EventRecorder) proof {
	p := proof{
		metrics: metrics.New(),
		reporter: report.New(report.Options{
			Client: client, Events: recorder, OnNode: reportOnNode(recorder, cfg.NodeName),
			Evicts: func(g gpu.Grant) bool {
				d, ok := devices.Device(g.Pool, g.Device)
				return ok && d.Evicts
			},
			PeakInterval: 6 * cfg.AuditInterval,
		}),
	}
	p.auditor = audit.New(audit.Options{
		Hardware: nvml, Machine: finder, Limits: confiner,
		Records: func(ctx context.Context) (records []state.Record, err error) {
			err = store.Do(ctx, func(tx *state.Tx) error {
				records = tx.All()
				return nil
			})
			return records, err
		},
		Pods: podsOf(client),
		Audited: func(ctx context.Context, s audit.Snapshot) {
			p.metrics.Audited(s)
			p.reporter.Audited(ctx, s)
		},
	})
	return p
}

// podsOf asks the API server which pods a claim is reserved for.
func podsOf(client kubernetes.Interface) func(context.Context, state.Record) ([]audit.Pod, error) {
	return func(ctx context.Context, r state.Record) ([]audit.Pod, error) {
		c, err := getClaim(ctx, client, r.Namespace, r.Name)
		if err != nil || c == nil || c.UID != r.UID {
			return nil, err
		}
		var pods []audit.Pod
		for _, p := range claim.Pods(c) {
			pods = append(pods, audit.Pod{UID: string(p.UID), Name: p.Name})
		}
		return pods, nil
	}
}

// listenInterval is how long to wait for an address that is in use: a plugin that
// is about to be replaced may have it, where both are in the host's network.
const listenInterval = 2 * time.Second

// serveMetrics serves them at an address until ctx is done; at none, nowhere.
func serveMetrics(ctx context.Context, address string, handler http.Handler) error {
	if address == "" {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var listener net.Listener
	err := wait.PollUntilContextCancel(ctx, listenInterval, true, func(ctx context.Context) (_ bool, err error) {
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Serving metrics; trying again", "address", address)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil // ctx is done
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics at %s: %w", address, err)
	}
	return nil
}
