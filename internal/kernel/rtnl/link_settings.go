package rtnl

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// confIndex is the index of a setting in the arrays of a link message
// (IFLA_INET_CONF and IFLA_INET6_CONF; linux/ip.h, linux/ipv6.h), by the sysctl's
// name without the link's name.
var confIndex = map[string]ConfAt{
	"net.ipv4.conf..forwarding":          {unix.AF_INET, 0}, // IPV4_DEVCONF_FORWARDING - 1: they count from 1
	"net.ipv4.conf..accept_redirects":    {unix.AF_INET, 3},
	"net.ipv4.conf..accept_source_route": {unix.AF_INET, 8},
	"net.ipv6.conf..forwarding":          {unix.AF_INET6, 0},
	"net.ipv6.conf..accept_ra":           {unix.AF_INET6, 3},
	"net.ipv6.conf..accept_redirects":    {unix.AF_INET6, 4},
	"net.ipv6.conf..autoconf":            {unix.AF_INET6, 5},
	"net.ipv6.conf..disable_ipv6":        {unix.AF_INET6, 26},
}

type ConfAt struct {
	family uint16
	index  int
}

// LinkConf are the settings of a link, by address family.
type LinkConf map[uint16][]byte

// LinkSetting splits a setting's name into the link's name and the setting's
// position in the link message. It returns false if link messages do not contain
// the setting.
func LinkSetting(s plan.Sysctl) (link string, at ConfAt, ok bool) {
	if link = s.Link(); link == "" {
		return "", at, false
	}
	parts := strings.Split(s.Name, ".")
	parts[3] = ""
	at, ok = confIndex[strings.Join(parts, ".")]
	return link, at, ok
}

// Has reports whether the link has the setting's value. If the link does not have
// the address family, there is nothing to set and it returns true.
func (c LinkConf) Has(at ConfAt, s plan.Sysctl) bool {
	value, known := c.value(at)
	return !known || s.Allows(value)
}

func (c LinkConf) value(at ConfAt) (value string, known bool) {
	array := c[at.family]
	if len(array) < 4*(at.index+1) {
		return "", false
	}
	return strconv.FormatInt(int64(int32(binary.NativeEndian.Uint32(array[4*at.index:]))), 10), true
}

// hasLinkSettings reports whether the links that the object consists of have its
// settings.
func (h *Reader) hasLinkSettings(o plan.Object) (bool, error) {
	for _, s := range plan.LinkSettings(o) {
		confs, err := h.seenConfs(s.Netns)
		if err != nil {
			return false, err
		}
		link, at, ok := LinkSetting(s)
		if !ok {
			return false, fmt.Errorf("%s is not part of a link's message", s.Name)
		}
		if !confs[link].Has(at, s) {
			return false, nil
		}
	}
	return true, nil
}

// ReadIPv6 returns mode, or IPv6Altered if the settings of the object's links
// differ from it.
func (h *Reader) ReadIPv6(o plan.Object, mode plan.IPv6) (plan.IPv6, error) {
	ok, err := h.hasLinkSettings(o)
	if err == nil && !ok {
		mode = plan.IPv6Altered
	}
	return mode, err
}

// seenConfs returns the settings of all links in a namespace, by the link's name.
// It caches them.
func (h *Reader) seenConfs(netns string) (map[string]LinkConf, error) {
	confs, err := h.seen.confs.Of(netns, func() (map[string]LinkConf, error) { return h.ReadConfs(netns) })
	if err != nil {
		return nil, fmt.Errorf("list link settings: %w", err)
	}
	return confs, nil
}

// ReadConfs reads the settings of all links in a namespace.
func (h *Reader) ReadConfs(netns string) (map[string]LinkConf, error) {
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
			request.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nlutil.SkipStats)))
			return request.Execute(unix.NETLINK_ROUTE, 0)
		})
		return err
	})
	confs := make(map[string]LinkConf, len(messages))
	for _, m := range messages {
		name, conf := "", LinkConf{}
		nlutil.Attributes(m[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
			switch kind {
			case unix.IFLA_IFNAME:
				name = unix.ByteSliceToString(value)
			case unix.IFLA_AF_SPEC:
				nlutil.Attributes(value, conf.take)
			}
		})
		confs[name] = conf
	}
	return confs, err
}

// take stores the settings of one address family.
func (c LinkConf) take(family uint16, value []byte) {
	const inetConf, inet6Conf = 1, 2 // IFLA_INET_CONF, IFLA_INET6_CONF
	nlutil.Attributes(value, func(kind uint16, array []byte) {
		if family == unix.AF_INET && kind == inetConf || family == unix.AF_INET6 && kind == inet6Conf {
			c[family] = array
		}
	})
}

// ForgetConfs clears the cached settings of links.
func (h *Reader) ForgetConfs() { h.seen.confs.Forget() }
