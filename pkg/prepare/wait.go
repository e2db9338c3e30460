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

package prepare

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/claim"
)

// retryInterval is the time between two looks at a GPU that is about to be free.
const retryInterval = 250 * time.Millisecond

// whenFree repeats a try that fails because of claims that have ended as far as
// the API server knows, as those of a force-deleted pod have. Their containers
// are being stopped, and an Unprepare follows. The kubelet would try again only
// after more than a minute.
func (p *Preparer) whenFree(ctx context.Context, try func() error) error {
	err := try()
	var held *claim.HeldError
	if !errors.As(err, &held) || !p.anyEnded(ctx, held.By) {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Waiting for claims that have ended to be unprepared", "atMost", p.Patience, "err", err)
	// That the time is up says less than the last error does.
	_ = wait.PollUntilContextTimeout(ctx, retryInterval, p.Patience, false, func(context.Context) (bool, error) {
		err = try()
		return !errors.As(err, &held), nil
	})
	return err
}

// anyEnded tells whether a holder is known to be in use no more.
func (p *Preparer) anyEnded(ctx context.Context, holders []claim.Holding) bool {
	for _, h := range holders {
		if inUse, err := p.InUse(ctx, h.Namespace, h.Name, h.UID); err == nil && !inUse {
			return true
		}
	}
	return false
}
