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

// Command kubeletemu stands in for a kubelet where none can run: see package
// emulator. Given a driver's command line after "--", it also keeps that driver
// running, as a DaemonSet would; SIGHUP restarts the driver.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/e2e/kubeletemu/emulator"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "kubeletemu: %v\n", err)
		os.Exit(1)
	}
}

type options struct {
	emulator.Options
	kubeconfig string
	pidFile    string
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:           "kubeletemu [flags] [-- DRIVER ARGUMENT...]",
		Short:         "Make a kubelet's calls for dynamic resource allocation, without containers",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, driver []string) error {
			return run(command.Context(), o, driver)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of a cluster administrator")
	flags.StringVar(&o.NodeName, "node-name", "localhost", "name of the Node to register")
	flags.StringVar(&o.KubeletRootDir, "kubelet-root-dir", "", "folder below which drivers put their sockets")
	flags.StringVar(&o.CDIRoot, "cdi-root", "", "folder of CDI specs")
	flags.StringVar(&o.pidFile, "pid-file", "", "file to lock and to write the process id to")
	for _, required := range []string{"kubeconfig", "kubelet-root-dir", "cdi-root", "pid-file"} {
		// It fails only for a flag that does not exist.
		_ = command.MarkFlagRequired(required)
	}
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.AddGoFlag(logging.Lookup("v"))
	return command
}

func run(ctx context.Context, o options, driver []string) error {
	pidFile, err := lockPIDFile(o.pidFile)
	if err != nil {
		return err
	}
	defer pidFile.Close()
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read --kubeconfig=%s: %w", o.kubeconfig, err)
	}
	// One process stands for a node and for all that is asked of it.
	config.QPS = -1
	if o.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	for _, dir := range []string{o.RegistryDir(), filepath.Join(o.KubeletRootDir, "plugins"), o.CDIRoot} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("create a folder that drivers need: %w", err)
		}
	}
	if len(driver) > 0 {
		// The driver must not outlast an emulator that fails.
		driverCtx, stopDriver := context.WithCancel(ctx)
		restart := make(chan os.Signal, 1)
		signal.Notify(restart, syscall.SIGHUP)
		done := make(chan struct{})
		go func() {
			defer close(done)
			keepRunning(driverCtx, driver, restart)
		}()
		defer func() {
			stopDriver()
			<-done
		}()
	}
	return emulator.Run(ctx, o.Options)
}

// lockPIDFile makes sure that only one process serves the node: the lock ends
// with the process, however it ends.
func lockPIDFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open --pid-file: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w: another kubeletemu serves this node", path, err)
	}
	if err = file.Truncate(0); err == nil {
		_, err = fmt.Fprintf(file, "%d\n", os.Getpid())
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return file, nil
}
