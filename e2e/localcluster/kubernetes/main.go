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

// Command kube is every Kubernetes program that the local cluster runs, in one
// binary: they share nearly all of their packages, so building and linking them
// together costs little more than building one of them.
//
// The program is chosen by the name the binary is called by (a symlink named
// kubectl is kubectl) or else by the first argument. It knows nothing of the
// local cluster: flags and configuration are the caller's.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJob time zones, where the machine has no zone files

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs may name auth plugins
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of each component
	_ "k8s.io/component-base/metrics/prometheus/version"  // build version metric
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// program runs with os.Args as if it were a binary of its own and ends the
// process itself when it fails.
type program func()

func programs() map[string]program {
	return map[string]program{
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          component(apiserver.NewAPIServerCommand),
		"kube-controller-manager": component(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kubectl":                 kubectl,
	}
}

// component defers the construction: building a command registers flags and
// feature gates that belong to that program alone.
func component(newCommand func() *cobra.Command) program {
	return func() { os.Exit(cli.Run(newCommand())) }
}

func kubectl() {
	// Verbosity has to be known before the command is built, because building it
	// already looks for plugins and reads the user's preferences.
	if err := logs.GlogSetter(cmd.GetLogVerbosity(os.Args)); err != nil {
		fmt.Fprintf(os.Stderr, "kubectl: set verbosity: %v\n", err)
	}
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

// choose returns the program's name and the arguments it should see.
func choose(args []string, known map[string]program) (string, []string, error) {
	if name := filepath.Base(args[0]); known[name] != nil {
		return name, args, nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(known)), ", ")
	if len(args) < 2 {
		return "", nil, fmt.Errorf("name the program to run as the first argument: one of %s", names)
	}
	if known[args[1]] == nil {
		return "", nil, fmt.Errorf("no program %q: the first argument must be one of %s", args[1], names)
	}
	return args[1], args[1:], nil
}

func main() {
	known := programs()
	name, args, err := choose(os.Args, known)
	if err != nil {
		fmt.Fprintf(os.Stderr, "kube: %v\n", err)
		os.Exit(2)
	}
	os.Args = args
	known[name]()
}
