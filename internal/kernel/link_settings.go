package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// setLinkSettings writes the settings of the links that the object consists of. A
// new link gets its settings before it is set up: until then it receives nothing,
// so the kernel's defaults have no effect.
func (h *Host) setLinkSettings(o plan.Object) error {
	return h.writeSettings(plan.LinkSettings(o))
}

// writeSettings writes the settings, which may be of several namespaces; it enters
// each namespace once. It skips settings that do not exist: those for IPv6 on a
// kernel without IPv6, or on a link whose MTU is too small for IPv6.
func (h *Host) writeSettings(all []plan.Sysctl) error {
	h.mu.Lock()
	h.seen.confs = nil
	h.mu.Unlock()
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Netns == all[0].Netns {
			n++
		}
		ns, err := h.ns.Open(all[0].Netns)
		if err != nil {
			return err
		}
		err = ns.Do(func() error { return writeSettings(all[:n]) })
		ns.Close()
		if err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// writeSettings writes settings of the calling thread's namespace.
func writeSettings(all []plan.Sysctl) error {
	for _, s := range all {
		err := writeSysctl(sysctlPath(s.Name), s.Value)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	return nil
}

// confIndex is the index of a setting in the arrays of a link message
// (IFLA_INET_CONF and IFLA_INET6_CONF; linux/ip.h, linux/ipv6.h), by the sysctl's
// name without the link's name.
var confIndex = map[string]confAt{
	"net.ipv4.conf..accept_redirects":    {unix.AF_INET, 4 - 1}, // IPV4_DEVCONF_* count from 1
	"net.ipv4.conf..accept_source_route": {unix.AF_INET, 9 - 1},
	"net.ipv6.conf..accept_ra":           {unix.AF_INET6, 3},
	"net.ipv6.conf..accept_redirects":    {unix.AF_INET6, 4},
	"net.ipv6.conf..autoconf":            {unix.AF_INET6, 5},
	"net.ipv6.conf..disable_ipv6":        {unix.AF_INET6, 26},
}

type confAt struct {
	family uint16
	index  int
}

// linkConf are the settings of a link, by address family.
type linkConf map[uint16][]byte

// linkSetting splits a setting's name into the link's name and the setting's
// position in the link message. It returns false if link messages do not contain
// the setting.
func linkSetting(s plan.Sysctl) (link string, at confAt, ok bool) {
	parts := strings.Split(s.Name, ".")
	if len(parts) != 5 || parts[3] == "all" || parts[3] == "default" {
		return "", at, false
	}
	link, parts[3] = parts[3], ""
	at, ok = confIndex[strings.Join(parts, ".")]
	return link, at, ok
}

// has reports whether the link has the setting's value. If the link does not have
// the address family, there is nothing to set and it returns true.
func (c linkConf) has(at confAt, value string) bool {
	array, known := c[at.family]
	if !known || len(array) < 4*(at.index+1) {
		return true
	}
	return strconv.FormatInt(int64(int32(native.Uint32(array[4*at.index:]))), 10) == value
}

// hasLinkSettings reports whether the links that the object consists of have its
// settings.
func (h *Host) hasLinkSettings(o plan.Object) (bool, error) {
	for _, s := range plan.LinkSettings(o) {
		confs, err := h.seenConfs(s.Netns)
		if err != nil {
			return false, err
		}
		link, at, ok := linkSetting(s)
		if !ok {
			return false, fmt.Errorf("%s is not part of a link's message", s.Name)
		}
		if !confs[link].has(at, s.Value) {
			return false, nil
		}
	}
	return true, nil
}

// readIPv6 returns mode, or IPv6Altered if the settings of the object's links
// differ from it.
func (h *Host) readIPv6(o plan.Object, mode plan.IPv6) (plan.IPv6, error) {
	ok, err := h.hasLinkSettings(o)
	if err == nil && !ok {
		mode = plan.IPv6Altered
	}
	return mode, err
}

// seenConfs returns the settings of all links in a namespace, by the link's name.
// It caches them.
func (h *Host) seenConfs(netns string) (map[string]linkConf, error) {
	h.mu.Lock()
	confs, ok := h.seen.confs[netns]
	h.mu.Unlock()
	if ok {
		return confs, nil
	}
	confs, err := h.readConfs(netns)
	if err != nil {
		return nil, fmt.Errorf("list link settings: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen.confs == nil {
		h.seen.confs = map[string]map[string]linkConf{}
	}
	h.seen.confs[netns] = confs
	return confs, nil
}

// readConfs reads the settings of all links in a namespace.
func (h *Host) readConfs(netns string) (map[string]linkConf, error) {
	ns, err := h.ns.Open(netns)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var messages [][]byte
	err = ns.Do(func() error {
		messages, err = nlutil.Retry(func() ([][]byte, error) {
			request := nl.NewNetlinkRequest(unix.RTM_GETLINK, unix.NLM_F_DUMP)
			request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
			request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(skipStats)))
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		return err
	})
	confs := make(map[string]linkConf, len(messages))
	for _, m := range messages {
		name, conf := "", linkConf{}
		attributes(m[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			switch kind {
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(value)
			case unix.IFLA_AF_SPEC:
				attributes(value, conf.take)
			}
		})
		confs[name] = conf
	}
	return confs, err
}

// take stores the settings of one address family.
func (c linkConf) take(family uint16, value []byte) {
	const inetConf, inet6Conf = 1, 2 // IFLA_INET_CONF, IFLA_INET6_CONF
	attributes(value, func(kind uint16, array []byte) {
		if family == unix.AF_INET && kind == inetConf || family == unix.AF_INET6 && kind == inet6Conf {
			c[family] = array
		}
	})
}
