package kernel

import (
	"fairlead/internal/kernel/iptables"
	"fairlead/internal/kernel/nft"
	"fairlead/internal/kernel/watch"
	"fairlead/internal/plan"
)

func nftOf(h *Host) *nft.Handle { return h.nft }

func iptablesOf(h *Host) *iptables.Handle { return h.iptables }

var filterKind = kind[plan.FilterChain]{
	set:       on(iptablesOf, (*iptables.Handle).SetFilter),
	del:       on(iptablesOf, (*iptables.Handle).DelFilter),
	read:      reading(iptablesOf, (*iptables.Handle).ReadFilter),
	leftovers: reading(iptablesOf, (*iptables.Handle).LeftoverFilters),
	concerned: func(m *watch.Matcher, _ plan.FilterChain) bool { return m.FilterDiffers() },
	polled:    true,
}

var guardKind = kind[plan.Guard]{
	set:       on(nftOf, (*nft.Handle).SetGuard),
	del:       on(nftOf, (*nft.Handle).DelGuard),
	read:      reading(nftOf, (*nft.Handle).ReadGuard),
	leftovers: reading(nftOf, (*nft.Handle).LeftoverGuard),
	concerned: func(m *watch.Matcher, _ plan.Guard) bool { return m.TableChanged(plan.GuardTable) },
}

var ipvsTableKind = kind[plan.IPVSTable]{
	set:       on(nftOf, (*nft.Handle).SetIPVSTable),
	del:       on(nftOf, (*nft.Handle).DelIPVSTable),
	read:      func(h *Host, t plan.IPVSTable) (plan.Object, error) { return h.nft.ReadOfIPVSTable(t) },
	leftovers: reading(nftOf, (*nft.Handle).LeftoverOfIPVSTable),
	concerned: func(m *watch.Matcher, _ plan.IPVSTable) bool { return m.TableChanged(plan.IPVSTableName) },
}

var ipvsMemberKind = kind[plan.IPVSMember]{
	set:       on(nftOf, (*nft.Handle).SetIPVSMember),
	del:       on(nftOf, (*nft.Handle).DelIPVSMember),
	read:      func(h *Host, o plan.IPVSMember) (plan.Object, error) { return h.nft.ReadOfIPVSTable(o) },
	concerned: func(m *watch.Matcher, _ plan.IPVSMember) bool { return m.TableChanged(plan.IPVSTableName) },
}

// Objects of the nft tables differ if another program changed the table.
var (
	tableKind      = kind[plan.Table]{concerned: inTable[plan.Table]}
	nftMappingKind = kind[plan.NFTMapping]{concerned: inTable[plan.NFTMapping]}
	memberKind     = kind[plan.Member]{concerned: inTable[plan.Member]}
	proxiedKind    = kind[plan.Proxied]{concerned: inTable[plan.Proxied]}

	serviceTableKind = kind[plan.ServiceTable]{concerned: inServices[plan.ServiceTable]}
	nftServiceKind   = kind[plan.NFTService]{concerned: inServices[plan.NFTService]}
)

func inTable[T plan.Object](m *watch.Matcher, _ T) bool { return m.TableChanged(plan.Mark) }

func inServices[T plan.Object](m *watch.Matcher, _ T) bool { return m.TableChanged(plan.ServicesTable) }

var flowtableKind = kind[plan.Flowtable]{
	set: func(h *Host, _ plan.Flowtable) error {
		return h.withUplinks(func(names []string) error { return h.nft.SetFlowtable(names) })
	},
	del: on(nftOf, (*nft.Handle).DelFlowtable),
	read: func(h *Host, _ plan.Flowtable) (is plan.Object, err error) {
		err = h.withUplinks(func(names []string) (err error) { is, err = h.nft.ReadFlowtable(names); return err })
		return is, err
	},
	leftovers: reading(nftOf, (*nft.Handle).LeftoverFlowtable),
	concerned: func(m *watch.Matcher, _ plan.Flowtable) bool {
		return m.TableChanged(plan.FlowtableName) || m.UplinksChanged()
	},
	polled: true, // legacy iptables sends no messages when rules change
}

// withUplinks calls fn with the names of the links towards other hosts.
func (h *Host) withUplinks(fn func(names []string) error) error {
	links, err := h.ebpf.Uplinks()
	if err != nil {
		return err
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return fn(names)
}

var flowtableLinkKind = kind[plan.FlowtableLink]{
	set:       on(nftOf, (*nft.Handle).SetFlowtableLink),
	del:       on(nftOf, (*nft.Handle).DelFlowtableLink),
	read:      reading(nftOf, (*nft.Handle).ReadFlowtableLink),
	concerned: func(m *watch.Matcher, _ plan.FlowtableLink) bool { return m.TableChanged(plan.FlowtableName) },
}

var noTrackKind = kind[plan.NoTrack]{
	set:       on(nftOf, (*nft.Handle).SetNoTrack),
	del:       on(nftOf, (*nft.Handle).DelNoTrack),
	read:      reading(nftOf, (*nft.Handle).ReadNoTrack),
	leftovers: reading(nftOf, (*nft.Handle).LeftoverNoTrack),
	concerned: func(m *watch.Matcher, o plan.NoTrack) bool { return m.TableChanged(o.Table()) },
}
