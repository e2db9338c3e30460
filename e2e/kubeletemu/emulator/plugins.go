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

package emulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registrationv1 "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// callTimeout is the kubelet's limit for one call of a driver.
const callTimeout = 45 * time.Second

// plugins are the drivers that have registered by a socket in dir.
type plugins struct {
	dir string

	mutex    sync.Mutex
	bySocket map[string]registration
}

type registration struct {
	socket identity // a new one of the same name is a new process
	driver string
	conn   *grpc.ClientConn
}

// identity tells a file from the next one of its name, which can have its inode.
type identity struct {
	inode uint64
	made  time.Time
}

func newPlugins(dir string) *plugins {
	return &plugins{dir: dir, bySocket: map[string]registration{}}
}

// discover looks for sockets that came or went, until ctx is done.
func (p *plugins) discover(ctx context.Context, every time.Duration) {
	logger := klog.FromContext(ctx)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.scan(ctx); err != nil && ctx.Err() == nil {
			logger.Error(err, "Registering drivers failed, will retry", "dir", p.dir)
		}
	}, every)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for socket := range p.bySocket {
		p.forget(socket)
	}
}

func (p *plugins) scan(ctx context.Context) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	present := map[string]identity{}
	entries, err := os.ReadDir(p.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || info.Mode()&os.ModeSocket == 0 {
			continue
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			present[filepath.Join(p.dir, entry.Name())] = identity{stat.Ino, info.ModTime()}
		}
	}
	for socket, known := range p.bySocket {
		if present[socket] != known.socket {
			p.forget(socket)
		}
	}
	var failed []error
	for socket, identity := range present {
		if _, known := p.bySocket[socket]; known {
			continue
		}
		registered, err := register(ctx, socket)
		if err != nil {
			failed = append(failed, fmt.Errorf("registration socket %s: %w", socket, err))
			continue
		}
		registered.socket = identity
		p.bySocket[socket] = registered
		klog.FromContext(ctx).Info("Driver registered", "driver", registered.driver, "socket", socket)
	}
	return errors.Join(failed...)
}

func (p *plugins) forget(socket string) {
	_ = p.bySocket[socket].conn.Close() // nothing is in flight on it that could be saved
	delete(p.bySocket, socket)
}

// register asks the driver behind a registration socket who it is, connects to
// its service and tells it that it has been accepted.
func register(ctx context.Context, socket string) (registration, error) {
	conn, err := dial(socket)
	if err != nil {
		return registration{}, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := registrationv1.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registrationv1.InfoRequest{})
	if err != nil {
		return registration{}, fmt.Errorf("get info: %w", err)
	}
	if err := acceptable(info); err != nil {
		_, notifyErr := client.NotifyRegistrationStatus(ctx, &registrationv1.RegistrationStatus{Error: err.Error()})
		return registration{}, errors.Join(err, notifyErr)
	}
	service, err := dial(info.Endpoint)
	if err != nil {
		return registration{}, err
	}
	if _, err := client.NotifyRegistrationStatus(ctx, &registrationv1.RegistrationStatus{PluginRegistered: true}); err != nil {
		return registration{}, errors.Join(fmt.Errorf("notify of the registration: %w", err), service.Close())
	}
	return registration{driver: info.Name, conn: service}, nil
}

func acceptable(info *registrationv1.PluginInfo) error {
	if info.Type != registrationv1.DRAPlugin {
		return fmt.Errorf("plugin %s is of type %q: only %q is emulated", info.Name, info.Type, registrationv1.DRAPlugin)
	}
	if !slices.Contains(info.SupportedVersions, drav1.DRAPluginService) {
		return fmt.Errorf("driver %s supports %q: %q is needed", info.Name, info.SupportedVersions, drav1.DRAPluginService)
	}
	return nil
}

func dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return conn, nil
}

// client returns the service of a driver.
func (p *plugins) client(driver string) (drav1.DRAPluginClient, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, registered := range p.bySocket {
		if registered.driver == driver {
			return drav1.NewDRAPluginClient(registered.conn), nil
		}
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", driver)
}

// prepare has one claim prepared and returns the devices that it got.
func (p *plugins) prepare(ctx context.Context, driver string, claim *drav1.Claim) ([]*drav1.Device, error) {
	client, err := p.client(driver)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := client.NodePrepareResources(ctx, &drav1.NodePrepareResourcesRequest{Claims: []*drav1.Claim{claim}})
	if err != nil {
		return nil, fmt.Errorf("NodePrepareResources: %w", err)
	}
	result, ok := response.Claims[claim.Uid]
	if !ok {
		return nil, fmt.Errorf("NodePrepareResources skipped ResourceClaim %s", claim.Name)
	}
	if result.Error != "" {
		return nil, fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", claim.Name, result.Error)
	}
	return result.Devices, nil
}

// unprepare undoes prepare.
func (p *plugins) unprepare(ctx context.Context, driver string, claim *drav1.Claim) error {
	client, err := p.client(driver)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := client.NodeUnprepareResources(ctx, &drav1.NodeUnprepareResourcesRequest{Claims: []*drav1.Claim{claim}})
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	result, ok := response.Claims[claim.Uid]
	if !ok {
		return fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", claim.Name)
	}
	if result.Error != "" {
		return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", claim.Name, result.Error)
	}
	return nil
}
