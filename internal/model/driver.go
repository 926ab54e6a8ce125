package model

// Driver names how a network connects sandboxes.
type Driver string

// The drivers.
const (
	DriverNone    Driver = "none"
	DriverHost    Driver = "host"
	DriverBridge  Driver = "bridge"
	DriverRouted  Driver = "routed"
	DriverMacvlan Driver = "macvlan"
	DriverIPvlan  Driver = "ipvlan"
	DriverVXLAN   Driver = "vxlan"
	DriverDevice  Driver = "device"
)

// Traits are the properties of a driver that other packages depend on. The zero value
// describes a driver that routes packets between the host and each sandbox.
type Traits struct {
	// NoLink is true if endpoints get no link.
	NoLink bool
	// HostNetns is true if endpoints are in the host's network namespace.
	HostNetns bool
	// Bridge is true if a bridge of the host connects the sandboxes.
	Bridge bool
	// Permanent is true if a network that Docker created exists on the host even
	// without endpoints.
	Permanent bool
	// Overlay is true if networks connect sandboxes of several hosts.
	Overlay bool
	// RoutesPeers is true if the host routes between the sandboxes of a network: each
	// has a link of its own.
	RoutesPeers bool
	// Remote is true if parts of a network's subnets can be on other hosts of the LAN.
	Remote bool
	// OnLAN is true if the sandboxes are hosts of a parent's LAN: they have addresses
	// and the gateway of the LAN.
	OnLAN bool
	// SubLinks is true if the sandboxes' links are on top of a parent. They have no
	// end on the host.
	SubLinks bool
	// ParentMAC is true if the sandboxes have the hardware address of the parent.
	ParentMAC bool
	// SharedMode is the default mode of a driver whose networks on one parent must all
	// have the same mode. It is empty if their modes may differ.
	SharedMode Mode
	// MovesDevice is true if a sandbox gets a whole device of the host. Its packets do
	// not pass the host.
	MovesDevice bool
	// Optional is true if the kernels of test machines may lack the driver: test/attack leaves it out.
	Optional bool
}

// drivers has one row per driver.
var drivers = []struct {
	name   Driver
	traits Traits
}{
	{DriverNone, Traits{NoLink: true}},
	{DriverHost, Traits{NoLink: true, HostNetns: true}},
	{DriverBridge, Traits{Bridge: true, Permanent: true}},
	{DriverRouted, Traits{Remote: true, RoutesPeers: true}},
	{DriverMacvlan, Traits{OnLAN: true, SubLinks: true}},
	{DriverIPvlan, Traits{OnLAN: true, SubLinks: true, ParentMAC: true, SharedMode: ModeL2, Optional: true}},
	{DriverVXLAN, Traits{Bridge: true, Overlay: true}},
	{DriverDevice, Traits{OnLAN: true, MovesDevice: true}},
}

// Traits returns the driver's traits. An unknown driver has the zero value.
func (d Driver) Traits() Traits {
	for _, row := range drivers {
		if row.name == d {
			return row.traits
		}
	}
	return Traits{}
}

// Drivers returns the names of the drivers with a trait.
func Drivers(has func(Traits) bool) []Driver {
	var names []Driver
	for _, row := range drivers {
		if has(row.traits) {
			names = append(names, row.name)
		}
	}
	return names
}

// Traits returns the traits of the network's driver.
func (n Network) Traits() Traits { return n.Driver.Traits() }

// Permanent reports whether the network exists on the host even without endpoints. A
// bridge network that Docker created does: Docker's own driver keeps its bridges too,
// and deleting a bridge is slow.
func (n Network) Permanent() bool { return n.Origin == FromDocker && n.Traits().Permanent }
