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

// Package pki makes the few keys and certificates that keep other users of the
// machine out of the cluster: whoever reaches etcd or the kubelet's port could
// otherwise become root through a privileged pod. It knows nothing of who uses
// them.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Validity is how long certificates last; a local cluster is not older.
const Validity = 5 * 365 * 24 * time.Hour

// CA signs certificates. Its key is kept in memory only, so nobody can sign
// another one later.
type CA struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
}

// NewCA makes a certificate authority valid from now on and writes its
// certificate to file.
func NewCA(name, file string, now time.Time) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key of %s: %w", name, err)
	}
	template := template(name, now)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate of %s: %w", name, err)
	}
	return &CA{cert: cert, key: key, now: now}, writePEM(file, "CERTIFICATE", der, 0o644)
}

// Server writes base.crt and base.key, for a server that is reached by any of
// hosts (names or addresses).
func (ca *CA) Server(base, name string, hosts ...string) error {
	template := template(name, ca.now)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return ca.issue(base, template)
}

// Client writes base.crt and base.key, for a client named name.
func (ca *CA) Client(base, name string) error {
	template := template(name, ca.now)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return ca.issue(base, template)
}

func (ca *CA) issue(base string, template *x509.Certificate) error {
	key, err := writeKey(base + ".key")
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return fmt.Errorf("sign certificate of %s: %w", template.Subject.CommonName, err)
	}
	return writePEM(base+".crt", "CERTIFICATE", der, 0o644)
}

// writeKey generates a P-256 key and writes it to file in PKCS#8.
func writeKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key %s: %w", file, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key %s: %w", file, err)
	}
	return key, writePEM(file, "PRIVATE KEY", der, 0o600)
}

func template(name string, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: newSerial(),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // a clock that is set back a little does no harm
		NotAfter:     now.Add(Validity),
	}
}

func newSerial() *big.Int {
	// rand.Int cannot fail: crypto/rand ends the process when it has no entropy.
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return serial.Add(serial, big.NewInt(1))
}

func writePEM(file, kind string, der []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("create folder of %s: %w", file, err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

// KeyPair generates a key for signing tokens: private in base.key, public in
// base.pub.
func KeyPair(base string) error {
	key, err := writeKey(base + ".key")
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode public key %s.pub: %w", base, err)
	}
	return writePEM(base+".pub", "PUBLIC KEY", der, 0o644)
}
