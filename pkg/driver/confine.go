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
	"os"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/container"
	"github.com/memslice/memslice/pkg/hook"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/state"
)

// newFinder finds the containers of this machine. It takes the pid namespace of
// the host, whose process ids the driver and the container runtime tell.
func newFinder(cfg *config.Config) container.Finder {
	return container.Finder{ProcRoot: "/proc", CgroupRoot: cfg.CgroupRoot}
}

// ownCgroup is that of this process, on which limits are tried.
func ownCgroup(finder container.Finder) func() (string, error) {
	return func() (string, error) { return finder.Cgroup(os.Getpid()) }
}

func newConfiner(cfg *config.Config, client kubernetes.Interface, store *state.Store, nvml *nvidia.Client, finder container.Finder) (*isolation.Confiner, error) {
	confiner, err := isolation.New(isolation.Options{
		Dir:        cfg.ContainersDir(),
		Containers: finder,
		Limits:     nvml,
		Record:     recordOf(store),
		Reserved:   reservedFor(client),
	})
	if err != nil {
		return nil, fmt.Errorf("open the containers that hold shares: %w", err)
	}
	return confiner, nil
}

func recordOf(store *state.Store) func(context.Context, types.UID) (state.Record, bool, error) {
	return func(ctx context.Context, uid types.UID) (r state.Record, found bool, err error) {
		err = store.Do(ctx, func(tx *state.Tx) error {
			r, found = tx.Get(uid)
			return nil
		})
		return r, found, err
	}
}

// reservedFor asks the API server, as the hook that started a container proves
// nothing.
func reservedFor(client kubernetes.Interface) func(context.Context, state.Record, string) (bool, error) {
	return func(ctx context.Context, r state.Record, pod string) (bool, error) {
		c, err := getClaim(ctx, client, r.Namespace, r.Name)
		if err != nil || c == nil || c.UID != r.UID {
			return false, err
		}
		return slices.ContainsFunc(claim.Pods(c), func(p resourceapi.ResourceClaimConsumerReference) bool { return string(p.UID) == pod }), nil
	}
}

// serveHooks answers the hooks of containers until ctx is done, and tells of each
// that may start.
func serveHooks(ctx context.Context, cfg *config.Config, confiner *isolation.Confiner, started func()) error {
	server := hook.Server{
		Path: cfg.HookSocket(),
		Handle: func(ctx context.Context, r hook.Request) error {
			err := confiner.Confine(ctx, r)
			if err != nil {
				klog.FromContext(ctx).Error(err, "Refused to start a container", "claimUID", r.Claim, "device", r.Device, "pid", r.PID)
				return err
			}
			started()
			return nil
		},
		Failed: func(err error) { klog.FromContext(ctx).Error(err, "A hook got no answer") },
	}
	return server.Serve(ctx)
}
