package member

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/cluster/trust"
)

// Which host acts as the node.
//
// A node's state directory can be copied: with a virtual machine, a template or a backup. So the record of a
// node names an instance: the one host that acts as the node. The others are frozen. They hold no virtual
// address, lease no address and commit no transaction, and their containers keep their traffic.
//
// A host recognises its own instance by an ID in a file that does not outlive the boot. After a reboot it
// recognises it by a hardware address (identity.go): a host that has one of the record's is the same, so the
// process that wrote the record has ended. It replaces the instance by its own in a transaction, so only one of
// several hosts can. A host with other hardware addresses never does that by itself, also if the record's
// instance is not alive: that one may be cut off from etcd only, and hold virtual addresses by the promises of
// others (package vip).
//
// A host that has none of the node's addresses is frozen too: no other node reaches it. A host that has one of
// them acts: the record, not an address, says that it is the node, and the others ask it at each address in turn.

// lookEvery is how often the host's links are read. An address that is missing for absentLooks of these in a row
// counts as missing: network managers delete addresses for a moment.
const (
	lookEvery   = 500 * time.Millisecond
	absentLooks = 3
)

// The limits of lists in records and messages.
const (
	maxHardware = 32
	maxShown    = 8
)

// instanceFile is the name of the file with the ID, in Config.Run.
const instanceFile = "instance.json"

// bootID is the file with the ID of the host's boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// host is what the Member knows about its host. It can be copied.
type host struct {
	// id is that of the host's instance. acts is true once the node's record has had it, and copied once it has
	// had that of another host.
	id           string
	acts, copied bool
	// links are those of the last look. absent counts the looks in a row without each of the node's addresses.
	links  []Link
	absent map[netip.Addr]int
	// machine identifies a host without hardware addresses; see Config.
	machine string
}

// remembered is the content of the file with the ID.
type remembered struct {
	Node string `json:"node"`
	ID   string `json:"id"`
	Boot string `json:"boot"`
}

// recallInstance returns the ID of the host's instance of a node. It draws and stores another one if there is
// none of this boot.
func (c *Config) recallInstance(node string) (string, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return "", fmt.Errorf("read the ID of the boot: %w", err)
	}
	path := filepath.Join(c.Run, instanceFile)
	text, err := os.ReadFile(path)
	var was remembered
	if err == nil {
		err = json.Unmarshal(text, &was)
	}
	if err == nil && was.Node == node && was.Boot == strings.TrimSpace(string(boot)) && trust.ValidID(was.ID) {
		return was.ID, nil
	}
	now := remembered{node, trust.NewID(), strings.TrimSpace(string(boot))}
	if text, err = json.Marshal(now); err == nil {
		err = replace(path, text)
	}
	if err != nil {
		return "", fmt.Errorf("store the instance of the node: %w", err)
	}
	return now.ID, nil
}

// instanceOf returns the host's instance of a node that begins to exist.
func (m standing) instanceOf(f file) (record.Instance, error) {
	id, err := m.cfg.recallInstance(f.Node)
	if err != nil {
		return record.Instance{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return record.Instance{ID: id, Hardware: m.host.hardware(f.Addresses)}, nil
}

// validInstance reports whether an instance has the form of those that instanceOf returns.
func validInstance(i record.Instance) bool {
	return i.ID == "" && len(i.Hardware) == 0 || trust.ValidID(i.ID) && len(i.Hardware) <= maxHardware &&
		!slices.ContainsFunc(i.Hardware, func(h string) bool { return !trust.ValidID(h) })
}

// instance returns the host's instance of a node with these addresses.
func (h host) instance(addresses []netip.Addr) record.Instance {
	return record.Instance{ID: h.id, Hardware: h.hardware(addresses)}
}

// foreign reports whether another host acts as the node.
func (h host) foreign(n record.Node) bool {
	switch {
	case n.Instance.ID == h.id:
		return false
	case n.Instance.ID == "": // an older version has written the record
		return h.copied
	case h.acts:
		return true // another host has replaced this one
	}
	return !shareHardware(n.Instance.Hardware, h.hardware(n.Addresses))
}

// frozen returns why the host may not act as the node, or an empty text.
func (h host) frozen(n record.Node) string {
	if h.foreign(n) {
		return "another host acts as node " + n.Name + ", and the state of one of them is a copy of the other's: if " +
			"that host is down for good, run `fairlead cluster takeover --force` here; if this host is the copy, run " +
			"`fairlead cluster leave --force` here, and join again"
	}
	missing := h.missing(n.Addresses)
	if h.acts && n.Instance.ID == h.id {
		missing = h.absentLong(n.Addresses)
	}
	if len(missing) < max(len(n.Addresses), 1) {
		return ""
	}
	return fmt.Sprintf("the host does not have the address %s of node %s: it has %s: give the node one of these with "+
		"`fairlead cluster readdress ADDRESS`, or add the address to the host", listed(missing), n.Name, h.shown())
}

// problems returns those of a host that acts as the node without one of its addresses.
func (h host) problems(n record.Node) (all []string) {
	missing := h.absentLong(n.Addresses)
	if len(missing) == len(n.Addresses) {
		return nil // it is frozen
	}
	for _, a := range missing {
		all = append(all, fmt.Sprintf("this host does not have the address %s of the node, and the other hosts reach it "+
			"at its other address only: add the address to the host, or replace the node's addresses with `fairlead "+
			"cluster readdress ADDRESS`", a))
	}
	return all
}

// absentLong returns the addresses that were missing for absentLooks.
func (h host) absentLong(addresses []netip.Addr) (all []netip.Addr) {
	for _, a := range addresses {
		if h.absent[a] >= absentLooks {
			all = append(all, a)
		}
	}
	return all
}

// looked takes over the links of a look, and returns the node's addresses that have just gone.
func (h *host) looked(links []Link, addresses []netip.Addr) (gone []netip.Addr) {
	h.links = links
	absent := map[netip.Addr]int{}
	for _, a := range h.missing(addresses) {
		if absent[a] = h.absent[a] + 1; absent[a] == 1 {
			gone = append(gone, a)
		}
	}
	h.absent = absent
	return gone
}

// standing decides whether the host of a Member may act as its node.
type standing struct{ *Member }

// look reads the host's links.
func (m standing) look() {
	links, err := m.cfg.Links()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.cfg.Log.Warn("read the host's links", "error", err)
		return
	}
	n, _, _ := m.ownRecord()
	m.host.machine = m.cfg.Machine
	if gone := m.host.looked(links, n.Addresses); len(gone) > 0 && m.store != nil {
		m.store.Drop(gone)
	}
}

// problemsOfHost returns what keeps this host from being a whole node. The caller has locked mu.
func (m standing) problemsOfHost() []string {
	all := slices.Concat(m.problems, m.lacking)
	if m.uncopied != "" {
		all = append(all, m.uncopied)
	}
	return all
}

// ownRecord returns the node's own record. The caller has locked mu.
func (m standing) ownRecord() (record.Node, kv.Entry, bool) {
	if m.snapshot == nil {
		return record.Node{}, kv.Entry{}, false
	}
	e, known := m.snapshot.Get(record.Key(record.Nodes, m.file.Node))
	n, err := record.Decode[record.Node](e)
	return n, e, known && err == nil
}

// judge decides by the newest records whether this host may act as its node.
func (m standing) judge() {
	m.mu.Lock()
	n, _, known := m.ownRecord()
	if !known {
		m.mu.Unlock()
		return
	}
	was, lacked := m.frozen, m.lacking
	m.host.acts = m.host.acts || n.Instance.ID == m.host.id
	m.host.copied = m.host.foreign(n)
	m.frozen = m.host.frozen(n)
	now := m.frozen
	m.lacking = m.host.problems(n)
	lacking := m.lacking
	m.mu.Unlock()
	if !slices.Equal(lacking, lacked) {
		m.report.Send()
	}
	if now == was {
		return
	}
	event := api.Event{Kind: api.ClusterFollowed, Object: "cluster"}
	if now != "" {
		event.Kind, event.Detail = api.ClusterFrozen, now
	}
	m.cfg.Note(event)
	m.judged.Send()
	m.report.Send()
}

// Frozen returns why this host does not act as its node, or ignores the store; empty if neither.
func (m *Member) Frozen() string {
	m.mu.Lock()
	frozen, store := m.frozen, m.store
	m.mu.Unlock()
	if frozen == "" && store != nil {
		return store.Frozen()
	}
	return frozen
}

// NotActing returns why this host may not act as its node; empty if it may.
func (m *Member) NotActing() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.frozen
}

// permitted returns an error that wraps kv.ErrFrozen if this host may not act as its node.
func (m standing) permitted() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frozen != "" {
		return fmt.Errorf("commit transaction: %w: %s", kv.ErrFrozen, m.frozen)
	}
	return nil
}

// cloned reports whether another host acts as this host's node.
func (m standing) cloned() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, _, known := m.ownRecord()
	return known && m.host.foreign(n)
}
