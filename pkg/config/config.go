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

// Package config holds the settings of the kubelet plugin: defaults, then
// environment, then flags, validated as a whole before anything starts.
//
// It reads nothing but what it is handed and the file that --config names, and
// keeps no globals. What a setting does is the business of the package that is
// given it.
package config

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// EnvPrefix begins the environment variable of each flag: --node-name is
// MEMSLICE_NODE_NAME.
const EnvPrefix = "MEMSLICE_"

// Config is what the kubelet plugin needs to know about its node and itself.
type Config struct {
	Place

	NodeName   string
	Kubeconfig string // empty for the service account of the pod

	// CDIRoot is where the container runtime looks for CDI specs.
	CDIRoot string

	// DriverRoot is where the NVIDIA driver is installed, on the host.
	DriverRoot string
	// ContainerDriverRoot is where this process sees DriverRoot; empty for the
	// same path.
	ContainerDriverRoot string
	// SysRoot is where sysfs is mounted.
	SysRoot string

	// NVIDIACDIHook is the nvidia-cdi-hook program to install on the host.
	NVIDIACDIHook string

	// ProcRoot is where procfs is mounted.
	ProcRoot string

	// CgroupRoot is where the host's cgroup file systems are mounted.
	CgroupRoot string

	// Hook is the memslice-hook program to install on the host.
	Hook string

	// NodeConfig is the file with the NodeConfigs of the cluster; empty for the
	// defaults.
	NodeConfig string

	// MemoryMin and MemoryStep win over what the defaults in NodeConfig say.
	// They are nil where they were not given.
	MemoryMin  *resource.Quantity
	MemoryStep *resource.Quantity

	// ScanInterval is the time between two looks at the GPUs, ReconcileInterval
	// that between two looks for prepared claims that no longer exist.
	ScanInterval      time.Duration
	ReconcileInterval time.Duration

	// AuditInterval is the time between two looks at what processes use.
	AuditInterval time.Duration

	// MetricsAddress is where metrics are served, host:port or :port; empty for
	// nowhere.
	MetricsAddress string
}

// Default is the configuration of a node with nothing unusual about it.
func Default() *Config {
	return &Config{
		Place:             DefaultPlace(),
		CDIRoot:           "/var/run/cdi",
		DriverRoot:        "/",
		SysRoot:           "/sys",
		NVIDIACDIHook:     "/usr/bin/nvidia-cdi-hook",
		ProcRoot:          "/proc",
		CgroupRoot:        "/sys/fs/cgroup",
		Hook:              "/usr/bin/memslice-hook",
		ScanInterval:      10 * time.Second,
		ReconcileInterval: time.Minute,
		AuditInterval:     10 * time.Second,
	}
}

// AddFlags binds c to flags whose defaults are the present values.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	c.Place.AddFlags(fs)
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "name of the Node object that this plugin serves (required)")
	fs.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig file; without it the pod's service account is used")
	fs.StringVar(&c.CDIRoot, "cdi-root", c.CDIRoot, "directory in which the container runtime looks for CDI specs")
	fs.StringVar(&c.DriverRoot, "driver-root", c.DriverRoot, "where the NVIDIA driver is installed on the host: / or, with the GPU Operator, /run/nvidia/driver")
	fs.StringVar(&c.ContainerDriverRoot, "container-driver-root", c.ContainerDriverRoot, "where this process sees --driver-root (default the same path)")
	fs.StringVar(&c.SysRoot, "sys-root", c.SysRoot, "where sysfs is mounted")
	fs.StringVar(&c.NVIDIACDIHook, "nvidia-cdi-hook", c.NVIDIACDIHook, "the nvidia-cdi-hook program; it is copied into the plugin's data directory, from where the container runtime runs it")
	fs.StringVar(&c.ProcRoot, "proc-root", c.ProcRoot, "where procfs is mounted")
	fs.StringVar(&c.CgroupRoot, "cgroup-root", c.CgroupRoot, "where the host's cgroup file systems are mounted")
	fs.StringVar(&c.Hook, "hook", c.Hook, "the memslice-hook program; it is copied into the plugin's data directory, from where the container runtime runs it")
	fs.StringVar(&c.NodeConfig, "config", c.NodeConfig, "file that says how GPUs are offered: one or more NodeConfigs in YAML, of which the first for this node's labels counts; read anew when it changes (default: every GPU in shares and as a whole)")
	fs.Func("memory-min", "the smallest share of a GPU's memory, a `quantity`; wins over defaults.memory.min in --config", setQuantity(&c.MemoryMin))
	fs.Func("memory-step", "shares of a GPU's memory grow in steps of this size, a `quantity`; wins over defaults.memory.step in --config", setQuantity(&c.MemoryStep))
	fs.DurationVar(&c.ScanInterval, "scan-interval", c.ScanInterval, "time between two looks at the GPUs")
	fs.DurationVar(&c.ReconcileInterval, "reconcile-interval", c.ReconcileInterval, "time between two looks for prepared claims that no longer exist")
	fs.DurationVar(&c.AuditInterval, "audit-interval", c.AuditInterval, "time between two looks at how much memory processes use, and at the limits that hold them")
	fs.StringVar(&c.MetricsAddress, "metrics-address", c.MetricsAddress, "where to serve Prometheus metrics, `host:port` or :port (default: nowhere)")
}

// setQuantity leaves nil what is not given, which no value of a flag can say.
func setQuantity(q **resource.Quantity) func(string) error {
	return func(s string) error {
		parsed, err := resource.ParseQuantity(s)
		if err != nil {
			return err
		}
		*q = &parsed
		return nil
	}
}

// FromEnvironment sets every flag that was not given on the command line and
// whose variable is set and not empty. --help and --version are no settings, and
// a variable MEMSLICE_VERSION may well be there for another reason.
func FromEnvironment(fs *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	fs.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(EnvName(f.Name))
		if f.Name == "help" || f.Name == "version" || !ok || value == "" || f.Changed || failed != nil {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			failed = fmt.Errorf("environment variable %s: %w", EnvName(f.Name), err)
		}
	})
	return failed
}

// EnvName is the environment variable that stands for a flag.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Complete fills in what follows from other settings.
func (c *Config) Complete() {
	if c.ContainerDriverRoot == "" {
		c.ContainerDriverRoot = c.DriverRoot
	}
}

// Validate reports every setting that cannot work, by the name of its flag.
func (c *Config) Validate() error {
	var errs field.ErrorList
	if c.NodeName == "" {
		errs = append(errs, field.Required(flagPath("node-name"), "the plugin publishes the GPUs of this node"))
	} else {
		for _, msg := range validation.NameIsDNSSubdomain(c.NodeName, false) {
			errs = append(errs, field.Invalid(flagPath("node-name"), c.NodeName, msg))
		}
	}
	errs = append(errs, c.validate()...)
	for flag, path := range map[string]string{
		"cdi-root":              c.CDIRoot,
		"driver-root":           c.DriverRoot,
		"container-driver-root": c.ContainerDriverRoot,
		"sys-root":              c.SysRoot,
		"proc-root":             c.ProcRoot,
		"nvidia-cdi-hook":       c.NVIDIACDIHook,
		"cgroup-root":           c.CgroupRoot,
		"hook":                  c.Hook,
	} {
		errs = append(errs, absolute(flag, path)...)
	}
	for flag, q := range map[string]*resource.Quantity{"memory-min": c.MemoryMin, "memory-step": c.MemoryStep} {
		if q == nil {
			continue
		}
		// AsInt64 gives up on "0.5Gi", which is a whole number all the same.
		if whole := resource.NewQuantity(q.Value(), q.Format); q.Sign() <= 0 || whole.Cmp(*q) != 0 {
			errs = append(errs, field.Invalid(flagPath(flag), q.String(), "must be a whole, positive number of bytes"))
		}
	}
	for flag, d := range map[string]time.Duration{"scan-interval": c.ScanInterval, "reconcile-interval": c.ReconcileInterval, "audit-interval": c.AuditInterval} {
		if d < time.Second {
			errs = append(errs, field.Invalid(flagPath(flag), d.String(), "must be at least 1s"))
		}
	}
	if c.MetricsAddress != "" {
		if _, port, err := net.SplitHostPort(c.MetricsAddress); err != nil || port == "" {
			errs = append(errs, field.Invalid(flagPath("metrics-address"), c.MetricsAddress, "must be host:port or :port"))
		}
	}
	return errs.ToAggregate()
}

func absolute(flag, path string) field.ErrorList {
	if !filepath.IsAbs(path) {
		return field.ErrorList{field.Invalid(flagPath(flag), path, "must be an absolute path")}
	}
	return nil
}

func flagPath(flag string) *field.Path { return field.NewPath("--" + flag) }

// PartitionsDir is where the marks of MIG instances are kept.
func (c *Config) PartitionsDir() string { return filepath.Join(c.PluginDir(), "partitions") }

// StateDir is where the prepared claims are kept.
func (c *Config) StateDir() string { return filepath.Join(c.PluginDir(), "claims") }

// HostCDIHook is where the container runtime finds nvidia-cdi-hook.
func (c *Config) HostCDIHook() string { return filepath.Join(c.PluginDir(), "nvidia-cdi-hook") }

// ContainersDir is where it is kept which containers have which shares.
func (c *Config) ContainersDir() string { return filepath.Join(c.PluginDir(), "containers") }

// HostHook is where the container runtime finds memslice-hook.
func (c *Config) HostHook() string { return filepath.Join(c.PluginDir(), "memslice-hook") }

// HookSocket is where memslice-hook finds this process.
func (c *Config) HookSocket() string { return filepath.Join(c.PluginDir(), "hook.sock") }
