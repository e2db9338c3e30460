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

package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func read(t *testing.T, base string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(base+".crt", base+".key")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	ca, err := NewCA("ca", filepath.Join(dir, "ca.crt"), now)
	if err != nil {
		t.Fatal(err)
	}
	server, client := filepath.Join(dir, "server"), filepath.Join(dir, "client")
	if err := ca.Server(server, "server", "127.0.0.1", "kubernetes.default"); err != nil {
		t.Fatal(err)
	}
	if err := ca.Client(client, "client"); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		t.Fatal("the CA's file holds no certificate")
	}
	asServer, asClient := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for _, tt := range []struct {
		name  string
		base  string
		host  string
		usage x509.ExtKeyUsage
		after time.Duration
		ok    bool
	}{
		{"by address", server, "127.0.0.1", asServer, 0, true},
		{"by name", server, "kubernetes.default", asServer, Validity - time.Minute, true},
		{"by another name", server, "example.com", asServer, 0, false},
		{"too late", server, "127.0.0.1", asServer, Validity + time.Minute, false},
		{"a server is no client", server, "", asClient, 0, false},
		{"client", client, "", asClient, 0, true},
		{"a client is no server", client, "", asServer, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(t, tt.base).Verify(x509.VerifyOptions{
				DNSName: tt.host, Roots: roots, CurrentTime: now.Add(tt.after), KeyUsages: []x509.ExtKeyUsage{tt.usage},
			})
			if (err == nil) != tt.ok {
				t.Errorf("verification: %v", err)
			}
		})
	}
	info, err := os.Stat(server + ".key")
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
}

func TestKeyPair(t *testing.T) {
	base := filepath.Join(t.TempDir(), "sa")
	if err := KeyPair(base); err != nil {
		t.Fatal(err)
	}
	decode := func(file, kind string) []byte {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(data)
		if block == nil || block.Type != kind {
			t.Fatalf("%s: %v", file, block)
		}
		return block.Bytes
	}
	private, err := x509.ParsePKCS8PrivateKey(decode(base+".key", "PRIVATE KEY"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.ParsePKIXPublicKey(decode(base+".pub", "PUBLIC KEY"))
	if err != nil {
		t.Fatal(err)
	}
	signer, ok := private.(*ecdsa.PrivateKey)
	if !ok || !signer.PublicKey.Equal(public) {
		t.Errorf("the public key %T is not that of the private key %T", public, private)
	}
}
