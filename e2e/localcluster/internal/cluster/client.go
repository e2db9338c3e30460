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

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/memslice/memslice/e2e/localcluster/internal/layout"
	"github.com/memslice/memslice/e2e/localcluster/internal/render"
	"github.com/memslice/memslice/e2e/localcluster/internal/state"
)

// client asks the cluster's servers how they are. It is not a Kubernetes client:
// that would more than double what has to be compiled first.
type client struct {
	http  *http.Client
	api   string
	token string
}

func newClient(l layout.Layout, s *state.State) (*client, error) {
	ca, err := os.ReadFile(l.PKI(render.CAFile))
	if err != nil {
		return nil, fmt.Errorf("read the cluster's CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("no certificate in %s", l.PKI(render.CAFile))
	}
	pair, err := tls.LoadX509KeyPair(l.PKI(render.ClientPair+".crt"), l.PKI(render.ClientPair+".key"))
	if err != nil {
		return nil, fmt.Errorf("read the client certificate: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	return &client{
		http:  &http.Client{Transport: transport, Timeout: 10 * time.Second},
		api:   s.APIServerURL(),
		token: s.Tokens.Admin,
	}, nil
}

// get fails unless the answer is 200.
func (c *client) get(ctx context.Context, url string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, url, nil, http.StatusOK)
}

func (c *client) do(ctx context.Context, method, url string, content []byte, accepted ...int) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(accepted, response.StatusCode) {
		return nil, fmt.Errorf("%s answers %s", url, response.Status)
	}
	return body, nil
}

func (c *client) healthy(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := c.get(ctx, url)
		return err
	}
}

// letNodesReadClaims closes a gap of the node authorizer. It lets a kubelet read
// the claims of its pods, but learns of a pod a moment after the kubelet does;
// the kubelet, refused, tries again only a minute later.
func (c *client) letNodesReadClaims(ctx context.Context) error {
	const name = "nodes-read-resourceclaims"
	group := "rbac.authorization.k8s.io"
	for resource, object := range map[string]map[string]any{
		"clusterroles": {
			"rules": []any{map[string]any{"apiGroups": []string{"resource.k8s.io"}, "resources": []string{"resourceclaims"}, "verbs": []string{"get"}}},
		},
		"clusterrolebindings": {
			"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": name},
			"subjects": []any{map[string]any{"apiGroup": group, "kind": "Group", "name": "system:nodes"}},
		},
	} {
		object["metadata"] = map[string]any{"name": name}
		content, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", resource, name, err)
		}
		if _, err := c.do(ctx, http.MethodPost, c.api+"/apis/"+group+"/v1/"+resource, content, http.StatusCreated, http.StatusConflict); err != nil {
			return fmt.Errorf("create %s %s: %w", resource, name, err)
		}
	}
	return nil
}

// nodeReady fails, with the node's own words, while it is not.
func (c *client) nodeReady(ctx context.Context, name string) error {
	body, err := c.get(ctx, c.api+"/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(body, &node); err != nil {
		return fmt.Errorf("decode node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return errors.New(condition.Message)
		}
	}
	return fmt.Errorf("node %s has not reported yet", name)
}

// podsAllowed fails until pods can be created in the default namespace.
func (c *client) podsAllowed(ctx context.Context) error {
	_, err := c.get(ctx, c.api+"/api/v1/namespaces/default/serviceaccounts/default")
	return err
}
