// Package truth builds hosts in network namespaces, sends real packets through them, and
// compares their fate with what Fairlead says. A host is a list of commands: those of a
// named case, or those that Generate makes from a seed.
//
// Theory of operation. Every host has the same links (see topology in host.go), and servers
// at port 80 of every place. The commands add rules, routes, settings, neighbours and
// sockets to it. A command that this kernel or this version of a tool refuses has no effect,
// so a list stays valid when commands are left out: Shrink uses that to find the shortest
// list with which a verdict is still wrong.
//
// An answer is right if it is certain and the packet ends so; it is unknown if it says that
// it is not certain, and why. An answer that is certain and wrong is a fault of Fairlead.
package truth
