package member

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
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
// recognises it by a hardware address: a host that has one of the record's is the same, so the process that
// wrote the record has ended. It replaces the instance by its own in a transaction, so only one of several
// hosts can. A host with other hardware addresses never does that by itself, also if the record's instance
// is not alive: that one may be cut off from etcd only, and hold virtual addresses by the promises of others
// (package vip).
//
// A host that does not have the node's addresses is frozen too: no other node reaches it.

// lookEvery is how often the host's links are read. A host whose address is missing for absentLooks of these in
// a row is frozen: network managers delete addresses for a moment.
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

// Link is a link of the host.
type Link struct {
	// Hardware is its hardware address, and Permanent that of the device. Each can be empty.
	Hardware, Permanent net.HardwareAddr
	Addresses           []netip.Addr
}

// host is what the Member knows about its host. It can be copied.
type host struct {
	// id is that of the host's instance. acts is true once the node's record has had it, and copied once it has
	// had that of another host.
	id           string
	acts, copied bool
	// links are those of the last look. absent counts the looks in a row without one of the node's addresses.
	links  []Link
	absent int
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

// addresses returns those of the host's links, except for loopback and link-local ones.
func (h host) addresses() (all []netip.Addr) {
	for _, l := range h.links {
		for _, a := range l.Addresses {
			if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
				all = append(all, a)
			}
		}
	}
	return all
}

// missing returns the addresses that the host does not have. It has all while its links are not known.
func (h host) missing(addresses []netip.Addr) []netip.Addr {
	if h.links == nil {
		return nil
	}
	have := h.addresses()
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return slices.Contains(have, a) })
}

// hardware returns the hashes of the devices' permanent hardware addresses, and of those of the links that have the
// node's addresses: links without a device have no other.
func (h host) hardware(addresses []netip.Addr) (all []string) {
	add := func(mac net.HardwareAddr) {
		if len(mac) > 0 {
			sum := sha256.Sum256(mac)
			all = append(all, hex.EncodeToString(sum[:8]))
		}
	}
	for _, l := range h.links {
		add(l.Permanent)
		if slices.ContainsFunc(l.Addresses, func(a netip.Addr) bool { return slices.Contains(addresses, a) }) {
			add(l.Hardware)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	return all[:min(len(all), maxHardware)]
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

func shareHardware(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}

// frozen returns why the host may not act as the node, or an empty text.
func (h host) frozen(n record.Node) string {
	if h.foreign(n) {
		return "another host acts as node " + n.Name + ", and the state of one of them is a copy of the other's: if " +
			"that host is down for good, run `fairlead cluster takeover --force` here; if this host is the copy, run " +
			"`fairlead cluster leave --force` here, and join again"
	}
	missing := h.missing(n.Addresses)
	if len(missing) == 0 || h.acts && n.Instance.ID == h.id && h.absent < absentLooks {
		return ""
	}
	return fmt.Sprintf("the host does not have the address %s of node %s: it has %s: give the node one of these with "+
		"`fairlead cluster readdress ADDRESS`, or add the address to the host", listed(missing), n.Name, h.shown())
}

// shown returns some of the host's addresses as a text.
func (h host) shown() string {
	all := h.addresses()
	if len(all) == 0 {
		return "none"
	}
	return listed(all[:min(len(all), maxShown)])
}

func listed(addresses []netip.Addr) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ", ")
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
	m.host.links = links
	n, _, _ := m.ownRecord()
	missing := m.host.missing(n.Addresses)
	if m.host.absent++; len(missing) == 0 {
		m.host.absent = 0
	}
	if m.host.absent == 1 && m.store != nil {
		m.store.Drop(missing)
	}
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
	was := m.frozen
	m.host.acts = m.host.acts || n.Instance.ID == m.host.id
	m.host.copied = m.host.foreign(n)
	m.frozen = m.host.frozen(n)
	now := m.frozen
	m.mu.Unlock()
	if now == was {
		return
	}
	event := api.Event{Kind: api.ClusterFollowed, Object: "cluster"}
	if now != "" {
		event.Kind, event.Detail = api.ClusterFrozen, now
	}
	m.cfg.Note(event)
	for _, wake := range []chan struct{}{m.judged, m.report} {
		poke(wake)
	}
}

// poke sends a value to those who wait, unless one is on its way.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
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
