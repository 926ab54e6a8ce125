package member

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// joinLimit is how long the request to one node may take.
const joinLimit = 15 * time.Second

// Join makes this host a node of the cluster that created the token. It can be repeated with the
// same token after a crash or an error.
func (m *Member) Join(ctx context.Context, r api.ClusterJoin) error {
	m.orders.Lock()
	defer m.orders.Unlock()
	token, err := trust.ParseToken(r.Token)
	if err != nil {
		return &api.Fault{Code: api.Invalid, Err: err}
	}
	f := m.self()
	if err := f.refuseOther(phaseJoining); err != nil {
		return err
	}
	if f.Phase == phaseNone {
		if f, err = newFile(phaseJoining); err != nil {
			return err
		}
	}
	if err := m.name(&f, r.ClusterNode, token.Nodes[0].String()); err != nil {
		return err
	}
	if err := m.set(f); err != nil {
		return err
	}
	answer, ca, err := m.askNodes(ctx, token, f)
	if err != nil {
		return err
	}
	if err := f.accept(answer, ca); err != nil {
		return err
	}
	if err := m.set(f); err != nil {
		return err
	}
	m.cfg.Log.Info("joined cluster", "name", f.ClusterName, "id", f.Cluster)
	return m.begin(ctx)
}

// askNodes sends the request to the nodes of the token, until one answers. It returns the CA's
// certificate too.
func (m *Member) askNodes(ctx context.Context, token trust.Token, f file) (joinAnswer, []byte, error) {
	request, err := trust.Request(f.key)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	instance, err := standing{m}.instanceOf(f)
	if err != nil {
		return joinAnswer{}, nil, err
	}
	r := joinRequest{Secret: token.Secret[:], Node: f.Node, Name: f.Name, Addresses: f.Addresses,
		MTU: m.cfg.mtu(f.Addresses, 0), Port: f.Port, Version: m.cfg.Version, Format: record.Format, Request: request,
		Instance: instance}
	var failed []error
	for _, at := range token.Nodes {
		answer, ca, err := m.askNode(ctx, token, at, f, r)
		var refused *api.Fault
		if err == nil || errors.As(err, &refused) {
			return answer, ca, err
		}
		failed = append(failed, fmt.Errorf("join at node %s: %w", at, err))
	}
	return joinAnswer{}, nil, errors.Join(failed...)
}

// askNode sends the request to one node. The secret is sent only after the node was verified.
func (m *Member) askNode(ctx context.Context, token trust.Token, at netip.AddrPort, f file,
	r joinRequest) (answer joinAnswer, ca []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, joinLimit)
	defer cancel()
	conn, err := m.cfg.Dial(ctx, "tcp", at.String())
	if err != nil {
		return answer, nil, err
	}
	defer conn.Close()
	config, found := trust.Pinned(token.CA, m.cfg.Now)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return answer, nil, err
	}
	if r.Proof, err = trust.Prove(f.key, secure.ConnectionState()); err != nil {
		return answer, nil, err
	}
	body, err := json.Marshal(r)
	if err != nil {
		return answer, nil, fmt.Errorf("write request: %w", err)
	}
	transport := &http.Transport{DisableKeepAlives: true,
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return secure, nil }}
	err = call(ctx, newClient(transport), at, pathJoin, body, &answer)
	ca, _ = found()
	return answer, ca, err
}

// newClient returns a client that follows no redirect: requests have secrets.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// call sends a request to the API of a node and decodes the answer. Returns *api.Fault if the node
// refused it.
func call(ctx context.Context, client *http.Client, at netip.AddrPort, path string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+at.String()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if len(text) > maxBody {
		return fmt.Errorf("read the node's answer: it is larger than %d bytes", maxBody)
	}
	if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, into); err != nil {
			return fmt.Errorf("read the node's answer: %w", err)
		}
		return nil
	}
	var refused refusal
	if err := json.Unmarshal(text, &refused); err != nil || refused.Message == "" {
		return fmt.Errorf("the node returned %s", response.Status)
	}
	return &api.Fault{Code: refused.Code, Err: errors.New(refused.Message)}
}

// accept completes the file with the node's answer.
func (f *file) accept(a joinAnswer, ca []byte) error {
	id := trust.Identity{Cluster: a.Cluster, Node: f.Node}
	leaf, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return fmt.Errorf("join: read the node's certificate: %w", err)
	}
	got, err := trust.IdentityOf(leaf)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if public, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || got != id || !public.Equal(&f.key.PublicKey) ||
		len(a.ClusterKey) != trust.KeySize || len(a.Access.Endpoints) == 0 {
		return errors.New("join: the node's answer is not valid: compare the versions of both hosts")
	}
	f.Phase, f.Cluster, f.ClusterName, f.CA = phaseMember, a.Cluster, a.ClusterName, ca
	f.Certificate, f.ClusterKey, f.Access = a.Certificate, a.ClusterKey, a.Access
	return nil
}
