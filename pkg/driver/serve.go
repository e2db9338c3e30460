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

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/inventory"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/prepare"
	"github.com/memslice/memslice/pkg/probe"
)

// parts are what serves.
type parts struct {
	client   kubernetes.Interface
	devices  *inventory.Inventory
	preparer *prepare.Preparer
	confiner *isolation.Confiner
	proof    proof
}

// serve runs the parts that live as long as the process, until one of them
// fails or ctx is done. What was prepared before has been reconciled.
func serve(ctx context.Context, cfg *config.Config, p parts) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	group, ctx := errgroup.WithContext(ctx)

	health := probe.NewServer(map[string]probe.Check{
		probe.Liveness:  func(ctx context.Context) error { return socketsAnswer(ctx, cfg) },
		probe.Readiness: func(ctx context.Context) error { return errors.Join(socketsAnswer(ctx, cfg), p.devices.Err()) },
	})
	group.Go(func() error { return health.Serve(ctx, cfg.HealthSocket()) })

	// Containers of prepared claims may start from now on.
	group.Go(func() error { return serveHooks(ctx, cfg, p.confiner, p.proof.auditor.Wake) })
	group.Go(func() error { return serveMetrics(ctx, cfg.MetricsAddress, p.proof.metrics.Handler()) })

	helper, err := startHelper(ctx, cfg, p.client, plugin{devices: p.devices, preparer: p.preparer, prepared: p.proof.auditor.Wake, fail: fail})
	if err != nil {
		fail(err)
		return errors.Join(err, group.Wait())
	}
	defer helper.Stop()
	klog.FromContext(ctx).Info("Serving the kubelet", "node", cfg.NodeName, "socket", cfg.DRASocket())

	group.Go(func() error { return p.devices.Run(ctx, helper, cfg.ScanInterval) })
	group.Go(func() error {
		p.proof.reporter.Run(ctx)
		return nil
	})
	group.Go(func() error {
		p.proof.auditor.Run(ctx, cfg.AuditInterval)
		return nil
	})
	group.Go(func() error {
		// Not at once, as it has just been done. It ends with ctx only, which
		// is no failure.
		_ = wait.PollUntilContextCancel(ctx, cfg.ReconcileInterval, false, func(ctx context.Context) (bool, error) {
			reconcile(ctx, cfg, p.client, p.devices, p.preparer)
			return false, nil
		})
		return nil
	})

	if err := group.Wait(); err != nil {
		return err
	}
	// A failure that a callback reported cancelled ctx with it as the cause;
	// when the caller did, there is none of our own.
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// socketsAnswer checks that the kubelet would get an answer where it asks.
func socketsAnswer(ctx context.Context, cfg *config.Config) error {
	err := call(cfg.RegistrationSocket(), func(conn *grpc.ClientConn) error {
		_, err := registerapi.NewRegistrationClient(conn).GetInfo(ctx, &registerapi.InfoRequest{})
		return err
	})
	if err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	err = call(cfg.DRASocket(), func(conn *grpc.ClientConn) error {
		_, err := drapb.NewDRAPluginClient(conn).NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{})
		return err
	})
	if err != nil {
		return fmt.Errorf("claims: %w", err)
	}
	return nil
}

func call(socket string, f func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	if err := f(conn); err != nil {
		return fmt.Errorf("call %s: %w", socket, err)
	}
	return nil
}
