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

// cudaload uses GPU memory as a CUDA program does, on the simulated driver: it
// opens the GPUs that its container has, makes a context, and allocates.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/memslice/memslice/e2e/fakegpu/driverroot"
	"github.com/memslice/memslice/e2e/fakegpu/kernel"
	"github.com/memslice/memslice/e2e/fakegpu/state"
)

const (
	// contextBytes is what a context takes of a GPU's memory, whatever else is
	// allocated. On real GPUs it is some hundreds of MiB, too.
	contextBytes = 256 << 20

	exitError       = 1
	exitOutOfMemory = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	err := newCommand().ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "cudaload:", err)
	code := exitError
	var child *exec.ExitError
	if errors.As(err, &child) {
		code = child.ExitCode()
	} else if outOfMemory(err) {
		code = exitOutOfMemory
	}
	os.Exit(code)
}

func outOfMemory(err error) bool {
	var refusal *state.Refusal
	return errors.As(err, &refusal) && refusal.Result == state.InsufficientMemory
}

type load struct {
	socket, dev    string
	gpu            int
	allocate, step quantity
	every          time.Duration
	hold           hold
	forks          int
	loop, unset    bool
	allocated      uint64
	device         *kernel.Device
}

func newCommand() *cobra.Command {
	l := &load{socket: driverroot.KernelSocket, dev: "/dev"}
	command := &cobra.Command{
		Use:   "cudaload",
		Short: "Use GPU memory, as a CUDA program does",
		Long: fmt.Sprintf(`cudaload opens a GPU of its container, makes a context, which takes %s, and
allocates. Where it gets no memory it says so and ends with status %d.`, amount(contextBytes), exitOutOfMemory),
		Example: `  cudaload --allocate 5Gi --hold 30s
  cudaload --gpu 1 --allocate 1Gi --step 64Mi --every 100ms --hold forever`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return l.run(command.Context()) },
	}
	command.CompletionOptions.DisableDefaultCmd = true
	shared := command.PersistentFlags()
	shared.IntVar(&l.gpu, "gpu", 0, "which GPU of the container, by CUDA's number")
	shared.StringVar(&l.socket, "socket", l.socket, "where the simulated kernel driver answers")
	shared.StringVar(&l.dev, "dev", l.dev, "where the device nodes of GPUs are")
	flags := command.Flags()
	flags.Var(&l.allocate, "allocate", "how much to allocate beside the context")
	flags.Var(&l.step, "step", "how much at a time (default: all at once)")
	flags.DurationVar(&l.every, "every", 0, "how long to wait between two steps")
	flags.Var(&l.hold, "hold", "how long to hold the memory, or forever (default: not at all)")
	flags.IntVar(&l.forks, "fork", 0, "how many children to have do it, at once, and each for itself")
	flags.BoolVar(&l.loop, "loop", false, "give everything back and begin again, without end, also after a refusal")
	flags.BoolVar(&l.unset, "unset", false, "drop every environment variable first")
	command.AddCommand(&cobra.Command{
		Use:   "info",
		Short: "Print what the GPU has, as a CUDA program sees it",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := l.open(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "GPU %d (%s): total %s, free %s\n", l.gpu, l.device.UUID, amount(l.device.Total), amount(l.device.Left))
			return err
		},
	})
	return command
}

func (l *load) run(ctx context.Context) error {
	if l.unset {
		return l.again([]string{}, "--unset")
	}
	if l.forks > 0 {
		return l.fork(ctx)
	}
	for {
		err := l.once(ctx)
		if !l.loop || ctx.Err() != nil {
			return err
		}
		if err != nil {
			if !outOfMemory(err) {
				return err
			}
			fmt.Println("cudaload:", err)
		}
		wait(ctx, max(l.every, 100*time.Millisecond))
	}
}

// again replaces this program with itself, less an argument.
func (l *load) again(environment []string, less string) error {
	args := slices.DeleteFunc(slices.Clone(os.Args), func(arg string) bool { return arg == less || arg == less+"=true" })
	return syscall.Exec("/proc/self/exe", args, environment)
}

// fork has children do it, and ends as badly as the worst of them.
func (l *load) fork(ctx context.Context) error {
	var args []string
	for i := 1; i < len(os.Args); i++ {
		switch arg := os.Args[i]; {
		case arg == "--fork":
			i++
		case strings.HasPrefix(arg, "--fork="):
		default:
			args = append(args, arg)
		}
	}
	var children []*exec.Cmd
	var failed []error
	for range l.forks {
		child := exec.CommandContext(ctx, "/proc/self/exe", args...)
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			failed = append(failed, err)
			continue
		}
		children = append(children, child)
	}
	for _, child := range children {
		failed = append(failed, child.Wait())
	}
	return errors.Join(failed...)
}

// once allocates, holds and gives back.
func (l *load) once(ctx context.Context) error {
	if err := l.open(); err != nil {
		return err
	}
	defer func() { _ = l.device.Close() }()
	l.allocated = 0
	if err := l.take("cuCtxCreate", contextBytes); err != nil {
		return err
	}
	step := uint64(l.step)
	if step == 0 {
		step = max(uint64(l.allocate), 1)
	}
	for left := uint64(l.allocate); left > 0; {
		next := min(step, left)
		if err := l.take("cuMemAlloc", next); err != nil {
			return err
		}
		l.allocated += next
		if left -= next; left > 0 {
			wait(ctx, l.every)
		}
	}
	fmt.Printf("allocated %s on GPU %d (%s)\n", amount(l.allocated), l.gpu, l.device.UUID)
	if l.hold != 0 {
		fmt.Println("holding")
		wait(ctx, time.Duration(l.hold))
	}
	return nil
}

func (l *load) take(call string, bytes uint64) error {
	err := l.device.Allocate(bytes)
	if outOfMemory(err) {
		err = fmt.Errorf("out of memory: %s of %s on GPU %d (%s): allocated %s beside a context of %s, CUDA_ERROR_OUT_OF_MEMORY (%w)",
			call, amount(bytes), l.gpu, l.device.UUID, amount(l.allocated), amount(contextBytes), err)
	}
	return err
}

func (l *load) open() error {
	minors, err := visible(l.dev, os.Getenv)
	if err != nil {
		return err
	}
	if l.gpu < 0 || l.gpu >= len(minors) {
		return fmt.Errorf("no GPU has the number %d: the container has %d", l.gpu, len(minors))
	}
	l.device, err = kernel.OpenDevice(l.socket, minors[l.gpu])
	return err
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func amount(bytes uint64) string {
	return resource.NewQuantity(int64(bytes), resource.BinarySI).String()
}
