package member

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"fairlead/internal/api"
	"fairlead/internal/cluster/trust"
	"fairlead/internal/jsonsum"
	"fairlead/internal/lock"
)

// phase is how far a membership is.
type phase string

const (
	phaseNone    phase = ""
	phaseInit    phase = "init"
	phaseJoining phase = "joining"
	phaseMember  phase = "member"
	// phaseLeaving is between the deletion of the node's records and that of the file.
	phaseLeaving phase = "leaving"
)

// file is all that a node keeps about its membership.
type file struct {
	Phase       phase  `json:"phase"`
	Cluster     string `json:"cluster"`
	ClusterName string `json:"clusterName"`
	Node        string `json:"node"`
	Name        string `json:"name"`
	// Addresses and Port are those of the node's API.
	Addresses []netip.Addr   `json:"addresses"`
	Port      uint16         `json:"port"`
	Access    api.EtcdAccess `json:"access"`
	// CA and Certificate are DER, Key is PKCS #8, and Sealed is the CA's encrypted key.
	CA          []byte `json:"ca"`
	Sealed      []byte `json:"sealed"`
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
	ClusterKey  []byte `json:"clusterKey"`

	key *ecdsa.PrivateKey
}

// fileName is the file, and copyName a copy of it.
const (
	fileName = "member.json"
	copyName = "member.json.copy"
)

// readFile reads the membership. It is empty if there is none. A damaged file, or one of which only the copy
// exists, is an error.
func readFile(dir string) (file, error) {
	path := filepath.Join(dir, fileName)
	f, err := parseFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		copied, failed := parseFile(filepath.Join(dir, copyName))
		if errors.Is(failed, fs.ErrNotExist) || copied.Phase == phaseLeaving { // the host was leaving
			return file{}, nil
		}
	}
	if err != nil {
		return file{}, fmt.Errorf("read the cluster's membership %s: %w: restore the file, for example from its copy "+
			"%s, or delete both and join again", path, err, copyName)
	}
	return f, nil
}

func parseFile(path string) (f file, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = jsonsum.Check(text)
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err == nil {
		f, err = f.opened()
	}
	return f, err
}

// protect writes the copy and the checksum of a file of an earlier version.
func (f file) protect(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, copyName)); f.Phase == phaseNone || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	uncopied, err := f.write(dir)
	return errors.Join(err, uncopied)
}

// opened parses the key.
func (f file) opened() (file, error) {
	key, err := x509.ParsePKCS8PrivateKey(f.Key)
	if err != nil {
		return f, fmt.Errorf("read the node's key: %w", err)
	}
	var ok bool
	if f.key, ok = key.(*ecdsa.PrivateKey); !ok {
		return f, errors.New("read the node's key: want an ECDSA key")
	}
	return f, nil
}

// newFile returns a membership with new keys.
func newFile(p phase) (file, error) {
	key, err := trust.NewKey()
	if err != nil {
		return file{}, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return file{}, fmt.Errorf("create the node's key: %w", err)
	}
	return file{Phase: p, Node: trust.NewID(), Key: text, key: key}, nil
}

// write replaces the file, so that a crash leaves the earlier or the new one, and then its copy. uncopied is why the
// copy is an earlier one: nothing but a repair needs it. A host that leaves has no copy, which could make it a node
// again.
func (f file) write(dir string) (uncopied, err error) {
	lock.Outside("the disk of the membership")
	text, err := json.Marshal(f)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err == nil {
		text = jsonsum.Add(text)
		err = replace(filepath.Join(dir, fileName), text)
	}
	if err != nil {
		return nil, fmt.Errorf("write the cluster's membership: %w", err)
	}
	copied := filepath.Join(dir, copyName)
	if f.Phase == phaseLeaving {
		if err := os.Remove(copied); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("delete the copy of the cluster's membership: %w", err)
		}
		return nil, nil
	}
	if err := replace(copied, text); err != nil {
		return fmt.Errorf("copy the cluster's membership: %w", err), nil
	}
	return nil, nil
}

// replace writes a file beside the path, syncs it, and renames it.
func replace(path string, text []byte) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// trusted returns the certificate with its key.
func (f file) trusted() trust.Node {
	return trust.Node{Identity: trust.Identity{Cluster: f.Cluster, Node: f.Node}, Certificate: f.Certificate,
		CA: f.CA, Key: f.key}
}

// set writes the file and makes it the membership.
func (m *Member) set(f file) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if err := (disk{m}).become(f); err != nil {
		return err
	}
	if m.cfg.Changed != nil {
		m.cfg.Changed()
	}
	return nil
}

// amend changes and stores the membership of a node, unless the host is not that node any more.
func (m *Member) amend(node string, change func(*file)) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	f := m.self()
	if f.Phase != phaseMember || f.Node != node {
		return nil // the host has left meanwhile
	}
	change(&f)
	return disk{m}.become(f)
}

// disk stores the membership of a Member.
type disk struct{ *Member }

// become writes the file and makes it the membership. The caller has locked writing.
func (m disk) become(f file) error {
	uncopied, err := f.write(m.cfg.Dir)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.file = f
	m.mu.Unlock()
	m.note(uncopied)
	return nil
}

// note makes it a problem of the host if the membership was written without its copy.
func (m disk) note(uncopied error) {
	text := ""
	if uncopied != nil {
		m.cfg.Log.Warn("copy the membership", "error", uncopied)
		text = uncopied.Error() + ": make its directory writable, or free space there"
	}
	m.mu.Lock()
	m.uncopied = text
	m.mu.Unlock()
	m.report.Send()
}
