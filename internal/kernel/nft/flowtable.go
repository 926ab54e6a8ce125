package nft

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// Attributes of flowtables (linux/netfilter/nf_tables.h), which x/sys/unix lacks.
const (
	flowtableHook     = 3 // NFTA_FLOWTABLE_HOOK
	flowtableNumber   = 1 // NFTA_FLOWTABLE_HOOK_NUM
	flowtablePriority = 2 // NFTA_FLOWTABLE_PRIORITY
	flowtableDevices  = 3 // NFTA_FLOWTABLE_DEVS
	deviceName        = 1 // NFTA_DEVICE_NAME
)

// flowtable is the name of the flowtable in its table.
const flowtable = "flows"

// flows is the content of the table: the links of sandboxes, and all devices of the
// flowtable.
type flows struct{ links, devices map[string]bool }

// makeFlows creates the table with the content, or replaces it. The connections of an
// earlier flowtable leave it.
func (b *batch) makeFlows(f flows) {
	t := flowsTable()
	b.replaceTable(t.Table)
	b.addSet(t.sets[0])
	b.step(nftables.NFT_MSG_NEWFLOWTABLE, toMake, t.Table, flowtable, func() {
		b.nest(flowtableHook, func() {
			b.number(flowtableNumber, unix.NF_NETDEV_INGRESS)
			b.number(flowtablePriority, 0)
			b.nest(flowtableDevices, func() {
				for _, name := range slices.Sorted(maps.Keys(f.devices)) {
					b.text(deviceName, name)
				}
			})
		})
	})
	b.addChains(t)
	var elements []nftables.SetElement
	for _, name := range slices.Sorted(maps.Keys(f.links)) {
		elements = append(elements, nftables.SetElement{Key: ifname(name)})
	}
	b.addElements(t.sets[0], elements)
}

// readFlows reads the table. It returns false if it is missing or not complete.
func (r reader) readFlows() (f flows, whole bool, err error) {
	if whole, err = r.readWhole(flowsTable()); err != nil || !whole {
		return f, false, err
	}
	f = flows{links: map[string]bool{}, devices: map[string]bool{}}
	elements, err := r.elements(flowsTable().sets[0])
	if err != nil {
		return f, false, missing(err)
	}
	for _, e := range elements {
		f.links[unix.ByteSliceToString(e.Key)] = true
	}
	found := false
	err = r.dump(nftables.NFT_MSG_GETFLOWTABLE, request(nftables.TableFamilyINet, plan.FlowtableName),
		func(_ nftables.TableFamily, attrs []byte) {
			if nlutil.Text(attrs, nftables.NFTA_FLOWTABLE_NAME) != flowtable {
				return
			}
			found = true
			devices := nlutil.Attribute(attrs, flowtableHook, flowtableDevices)
			nlutil.Attributes(devices, func(_ uint16, name []byte) { f.devices[unix.ByteSliceToString(name)] = true })
		})
	return f, found, err
}

// changeFlows changes the content of the table. The connections in the flowtable leave it.
// It does nothing if the table is missing and create is false.
func changeFlows(h *Handle, create bool, edit func(*flows)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return h.noNft
	}
	f, whole, err := h.nft.readFlows()
	if err != nil || !whole && !create {
		return err
	}
	if !whole {
		f = flows{links: map[string]bool{}, devices: map[string]bool{}}
	}
	had := len(f.devices)
	edit(&f)
	if n := len(f.devices); n > mostDevices && n > had {
		return fmt.Errorf("a flowtable has at most %d links, bridge ports and links towards other hosts", mostDevices)
	}
	b := h.begin()
	b.makeFlows(f)
	return b.commit()
}

// mostDevices is how many devices the flowtable may have. The kernel takes 255 in a message.
// Its notification has at most 20 bytes for each, and with this number fits into a page. If a
// kernel cannot send it, the watcher takes each of the daemon's own changes for lost messages.
// Linux 6.1 and 6.12 send it for 250 devices, too.
const mostDevices = 160

// SetFlowtable creates the table with the devices, or adds the devices.
func (h *Handle) SetFlowtable(devices []string) error {
	return changeFlows(h, true, func(f *flows) {
		for _, name := range devices {
			f.devices[name] = true
		}
	})
}

// DelFlowtable deletes the table. The connections in the flowtable leave it.
func (h *Handle) DelFlowtable(plan.Flowtable) error { return h.drop(flowsTable()) }

// ReadFlowtable returns the object if the table is complete and the flowtable has the
// devices.
func (h *Handle) ReadFlowtable(devices []string) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	f, whole, err := h.nft.readFlows()
	if err != nil || !whole || slices.ContainsFunc(devices, func(name string) bool { return !f.devices[name] }) {
		return nil, err
	}
	return plan.Flowtable{}, nil
}

// LeftoverFlowtable returns the table if it is in no plan.
func (h *Handle) LeftoverFlowtable(known map[string]bool) (plan.Plan, error) {
	return leftover(h, plan.Flowtable{}, flowsTable(), known)
}

// SetFlowtableLink adds a link of a sandbox.
func (h *Handle) SetFlowtableLink(l plan.FlowtableLink) error {
	return changeFlows(h, true, func(f *flows) { f.links[l.Link], f.devices[l.Link] = true, true })
}

// DelFlowtableLink removes a link of a sandbox, which may be deleted already.
func (h *Handle) DelFlowtableLink(l plan.FlowtableLink) error {
	return changeFlows(h, false, func(f *flows) {
		delete(f.links, l.Link)
		delete(f.devices, l.Link)
	})
}

// ReadFlowtableLink returns the object if the table has the link.
func (h *Handle) ReadFlowtableLink(l plan.FlowtableLink) (plan.Object, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	f, whole, err := h.nft.readFlows()
	if err != nil || !whole || !f.links[l.Link] || !f.devices[l.Link] {
		return nil, err
	}
	return l, nil
}

// attempts is how often the table is replaced, because a device can be deleted between
// the read and the commit.
const attempts = 3

// EndFlows ends the connections in the flowtable, if there is one: the next packet of each
// passes all rules of the host. If the table cannot be replaced, or is not complete, it
// deletes the table and returns an error. It reports whether there was a table.
func (h *Handle) EndFlows() (bool, error) {
	if h.noNft != nil {
		return false, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	for range attempts {
		var f flows
		var whole bool
		if f, whole, err = h.nft.readFlows(); err != nil {
			continue
		}
		if !whole {
			if err = h.nft.find(flowsTable().Table); errors.Is(err, unix.ENOENT) {
				return false, nil
			}
			err = errors.Join(err, errNotWhole)
			break
		}
		b := h.begin()
		b.makeFlows(f)
		if err = b.commit(); err == nil {
			return true, nil
		}
	}
	b := h.begin()
	b.dropTable(flowsTable().Table)
	return true, errors.Join(err, b.commit())
}

var errNotWhole = errors.New("another program has changed the table of the flowtable")

// WithoutFlows calls fn while there is no flowtable, so that no connection can enter it, and
// then creates the table again. fn gets whether there was a flowtable. It may wait: the
// handle can be used meanwhile. Only the goroutine that applies plans may call WithoutFlows.
// If the table cannot be created again, it stays deleted, and unrestored is the reason.
func WithoutFlows(h *Handle, fn func(had bool) error) (unrestored, err error) {
	if h.noNft != nil {
		return nil, fn(false)
	}
	f, had, err := dropFlows(h)
	if err != nil {
		return nil, err
	}
	err = fn(had)
	if f.devices == nil {
		return nil, err
	}
	return restoreFlows(h, f), err
}

// dropFlows deletes the table, and returns its content. The content is empty if the table is
// missing, or not complete: then the watcher has noted that another program has changed it.
func dropFlows(h *Handle) (f flows, had bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, whole, err := h.nft.readFlows()
	if err != nil {
		return f, false, err
	}
	if !whole {
		f = flows{}
		if err := h.nft.find(flowsTable().Table); errors.Is(err, unix.ENOENT) {
			return f, false, nil
		}
	}
	b := h.begin()
	b.dropTable(flowsTable().Table)
	return f, true, b.commit()
}

// restoreFlows creates the table with the content that it had, without devices that do not
// exist any more.
func restoreFlows(h *Handle, f flows) (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range attempts {
		b := h.begin()
		b.makeFlows(f)
		if err = b.commit(); err == nil {
			break
		}
		err = errors.Join(err, h.ns.Do(f.forgetMissing))
	}
	return err
}

// forgetMissing removes the devices that do not exist in the namespace of the thread.
func (f flows) forgetMissing() error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	exists := map[string]bool{}
	for _, l := range links {
		exists[l.Name] = true
	}
	missing := func(name string, _ bool) bool { return !exists[name] }
	maps.DeleteFunc(f.devices, missing)
	maps.DeleteFunc(f.links, missing)
	return nil
}

// FlowLinks returns the links of sandboxes whose connections may be in the flowtable.
func (h *Handle) FlowLinks() (map[string]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nft == nil {
		return nil, nil
	}
	f, _, err := h.nft.readFlows()
	return f.links, err
}
