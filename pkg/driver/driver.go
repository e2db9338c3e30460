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

// Package driver wires the kubelet plugin together: configuration in, a running
// plugin out. It connects the parts and owns their life; what they do is theirs.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/memslice/memslice/pkg/cdi"
	"github.com/memslice/memslice/pkg/claim"
	"github.com/memslice/memslice/pkg/config"
	"github.com/memslice/memslice/pkg/gpu"
	"github.com/memslice/memslice/pkg/inventory"
	"github.com/memslice/memslice/pkg/isolation"
	"github.com/memslice/memslice/pkg/mig"
	"github.com/memslice/memslice/pkg/nvidia"
	"github.com/memslice/memslice/pkg/prepare"
	"github.com/memslice/memslice/pkg/publish"
	"github.com/memslice/memslice/pkg/state"
)

// apiTimeout is how long one question to the API server may take.
const apiTimeout = 10 * time.Second

// Run serves the kubelet until ctx is done, which is no error, or until
// something fails that a new process may mend.
func Run(ctx context.Context, cfg *config.Config) error {
	client, err := newClient(cfg.Kubeconfig)
	if err != nil {
		return err
	}
	if err := prepareHost(cfg); err != nil {
		return err
	}
	store, err := state.Open(ctx, cfg.StateDir(), state.Options{})
	if err != nil {
		return fmt.Errorf("open the prepared claims: %w", err)
	}
	sysfs, ok := os.DirFS(cfg.SysRoot).(fs.ReadLinkFS)
	if !ok {
		return fmt.Errorf("the file system at %s cannot read links", cfg.SysRoot)
	}
	finder := newFinder(cfg)
	nvml := nvidia.New(nvidia.Options{DriverRoot: cfg.ContainerDriverRoot, SysFS: sysfs, Cgroup: ownCgroup(finder)})
	defer nvml.Close()

	bootID, err := prepare.BootID()
	if err != nil {
		return fmt.Errorf("tell this boot from others: %w", err)
	}
	partitions, err := mig.New(mig.Options{Hardware: nvml, Dir: cfg.PartitionsDir(), BootID: bootID})
	if err != nil {
		return fmt.Errorf("open the marks of MIG instances: %w", err)
	}
	recorder := newRecorder(ctx, client, cfg.NodeName)
	source := &nodeConfig{cfg: cfg, client: client, now: time.Now}
	devices := inventory.New(inventory.Options{
		Node: cfg.NodeName, Hardware: nvml, Claims: store, Config: source.load, Grace: 3 * cfg.ScanInterval,
		Made: partitions.Made, Report: reportOnNode(recorder, cfg.NodeName),
	})
	preparer, err := newPreparer(cfg, client, store, devices, nvml, partitions, bootID)
	if err != nil {
		return err
	}

	confiner, err := newConfiner(cfg, client, store, nvml, finder)
	if err != nil {
		return err
	}
	proof := newProof(cfg, client, store, devices, nvml, finder, confiner, recorder)

	// What is on the host has to be right before the kubelet asks for more. No
	// GPU is needed for that, so neither of the two failing is fatal.
	if err := devices.Refresh(ctx); err != nil {
		klog.FromContext(ctx).Info("Starting without GPUs; they are published once they can be read", "reason", err)
	}
	reconcile(ctx, cfg, client, devices, preparer)
	return serve(ctx, cfg, parts{client: client, devices: devices, preparer: preparer, confiner: confiner, proof: proof})
}

func newClient(kubeconfig string) (kubernetes.Interface, error) {
	load := rest.InClusterConfig
	if kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", kubeconfig) }
	}
	restConfig, err := load()
	if err != nil {
		return nil, fmt.Errorf("find the API server (outside a pod give --kubeconfig): %w", err)
	}
	// Every pod start waits for a GET of its claim; the server's own fairness
	// is the limit that counts.
	restConfig.QPS = -1
	// Opaque configuration in claims has to come back as it was, byte by byte, or
	// the API server takes it for changed. JSON would be formatted anew.
	restConfig.ContentType = runtime.ContentTypeProtobuf
	restConfig.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", restConfig.Host, err)
	}
	return client, nil
}

func newPreparer(cfg *config.Config, client kubernetes.Interface, store *state.Store, devices *inventory.Inventory, nvml *nvidia.Client, partitions *mig.Partitions, bootID string) (*prepare.Preparer, error) {
	source, err := cdi.NewNVIDIA(cdi.NVIDIAOptions{
		DriverRoot:     cfg.ContainerDriverRoot,
		HostDriverRoot: cfg.DriverRoot,
		HookPath:       cfg.HostCDIHook(),
		NVML:           nvml.CDIOption,
		Minor:          nvml.Minor,
		ProcRoot:       cfg.ProcRoot,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the CDI edits of the driver in %s: %w", cfg.ContainerDriverRoot, err)
	}
	specs, err := cdi.New(cfg.CDIRoot, source, isolation.Hook{Path: cfg.HostHook(), Socket: cfg.HookSocket()}.Edits)
	if err != nil {
		return nil, fmt.Errorf("set up the CDI specs in %s: %w", cfg.CDIRoot, err)
	}
	return prepare.New(prepare.Config{
		Store:      store,
		Specs:      specs,
		Partitions: partitions,
		Devices:    devices,
		Attributes: publish.Attributes,
		InUse:      claimInUse(client, cfg.NodeName),
		BootID:     bootID,
		Patience:   20 * time.Second,
	}), nil
}

// claimInUse asks the API server, not a cache: a claim that is taken for gone
// loses its devices.
func claimInUse(client kubernetes.Interface, node string) func(context.Context, string, string, types.UID) (bool, error) {
	return func(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
		c, err := getClaim(ctx, client, namespace, name)
		return c != nil && claim.InUse(c, uid, node), err
	}
}

// getClaim is nil where there is no such claim. It does not wait for long, as
// others may have to meanwhile.
func getClaim(ctx context.Context, client kubernetes.Interface, namespace, name string) (*resourceapi.ResourceClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	c, err := client.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get ResourceClaim %s/%s: %w", namespace, name, err)
	}
	return c, nil
}

// startHelper registers with the kubelet.
func startHelper(ctx context.Context, cfg *config.Config, client kubernetes.Interface, plugin kubeletplugin.DRAPlugin) (*kubeletplugin.Helper, error) {
	helper, err := kubeletplugin.Start(ctx, plugin,
		kubeletplugin.DriverName(gpu.DriverName),
		kubeletplugin.NodeName(cfg.NodeName),
		kubeletplugin.KubeClient(client),
		kubeletplugin.RegistrarDirectoryPath(cfg.RegistryDir()),
		kubeletplugin.PluginDataDirectoryPath(cfg.PluginDir()),
		kubeletplugin.RollingUpdate(types.UID(cfg.PodUID)),
		// The state directory has a lock of its own. Under another one around
		// whole calls, a Prepare could not wait for the Unprepare that it needs.
		kubeletplugin.Serialize(false),
		kubeletplugin.CDIDirectory(cfg.CDIRoot),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.HealthService(false),
	)
	if err != nil {
		return nil, fmt.Errorf("start the kubelet plugin in %s: %w", cfg.PluginDir(), err)
	}
	return helper, nil
}

// plugin is what the kubelet calls.
type plugin struct {
	devices  *inventory.Inventory
	preparer *prepare.Preparer
	prepared func()                  // is told when a claim was
	fail     context.CancelCauseFunc // ends the process for the reason given
}

var _ kubeletplugin.DRAPlugin = plugin{}

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p plugin) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for _, c := range claims {
		ctx := klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KObj(c), "claimUID", c.UID))
		devices, err := p.prepare(ctx, c)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Preparing the claim failed")
		} else {
			klog.FromContext(ctx).V(2).Info("Prepared the claim", "devices", len(devices))
		}
		results[c.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (p plugin) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if err := p.devices.Err(); err != nil {
		return nil, fmt.Errorf("claim %s/%s: this node serves no GPUs at the moment: %w", c.Namespace, c.Name, err)
	}
	plan, err := claim.FromClaim(c, p.devices)
	if err != nil {
		return nil, err
	}
	prepared, err := p.preparer.Prepare(ctx, plan)
	if err == nil {
		p.prepared()
	}
	return prepared, err
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (p plugin) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(claims))
	for _, c := range claims {
		logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", c.NamespacedName, "claimUID", c.UID)
		err := p.preparer.Unprepare(klog.NewContext(ctx, logger), c.UID)
		if err != nil {
			logger.Error(err, "Unpreparing the claim failed")
		} else {
			logger.V(2).Info("Unprepared the claim")
		}
		results[c.UID] = err
	}
	return results, nil
}

// HandleError implements [kubeletplugin.DRAPlugin].
func (p plugin) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.fail(fmt.Errorf("%s: %w", msg, err))
	}
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin].
func (plugin) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
