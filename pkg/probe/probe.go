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

// Package probe answers the kubelet's probes: a gRPC health service on a unix
// socket, so that the plugin opens no port, and the client that the pod's exec
// probes run.
//
// It knows how to ask and how to answer. What is healthy is for the checks that
// it is given.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The services that a probe can ask for.
const (
	Liveness  = "liveness"
	Readiness = "readiness"
)

// reasonKey is the trailer that says why a service is not serving, which the
// health protocol has no field for.
const reasonKey = "memslice-reason"

// Check returns why a service cannot serve, or nil.
type Check func(context.Context) error

// Server is a gRPC health service whose answers come from checks that run when
// asked.
type Server struct {
	grpc_health_v1.UnimplementedHealthServer

	checks map[string]Check
}

// NewServer answers for the named services.
func NewServer(checks map[string]Check) *Server { return &Server{checks: checks} }

// Check implements the gRPC health protocol.
func (s *Server) Check(ctx context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	check, ok := s.checks[req.Service]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", req.Service)
	}
	if err := check(ctx); err != nil {
		// Header values are one line of ASCII.
		reason := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
		if trailerErr := grpc.SetTrailer(ctx, metadata.Pairs(reasonKey, reason)); trailerErr != nil {
			return nil, fmt.Errorf("say why %s is not serving: %w", req.Service, trailerErr)
		}
		return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

// Serve listens on a unix socket that only root can reach, until ctx is done.
func (s *Server) Serve(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the old health socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listen for probes: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return errors.Join(fmt.Errorf("restrict the health socket: %w", err), listener.Close())
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	if err := server.Serve(listener); err != nil {
		return fmt.Errorf("serve probes on %s: %w", socket, err)
	}
	return nil
}

// Ask returns nil when the service behind the socket says that it is serving,
// and otherwise why it is not.
func Ask(ctx context.Context, socket, service string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", socket, err)
	}
	defer conn.Close()
	var trailer metadata.MD
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service}, grpc.Trailer(&trailer))
	if err != nil {
		return fmt.Errorf("ask %s for %s: %w", socket, service, err)
	}
	if resp.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s: %s: %s", service, resp.Status, strings.Join(trailer.Get(reasonKey), "; "))
	}
	return nil
}
