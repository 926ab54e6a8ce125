package kernel

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"fairlead/internal/kernel/nlutil"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// replacedTables are Fairlead's tables with content.
func replacedTables() plan.Plan {
	return slices.Concat(plan.Plan{plan.Table{}}, someElements(), services(someServices()...))
}

// TestReplacedTablesHaveStandIns replaces the nft tables, as the first start of another version does. The kernel's
// events show that each table has a stand-in from before its removal until after it is there again.
func TestReplacedTablesHaveStandIns(t *testing.T) {
	h := openTestHost(t)
	all := plan.Diff(nil, replacedTables())
	if err := h.nft.Transact(all); err != nil {
		t.Fatal(err)
	}
	events := tableEvents(t, h)
	if err := h.nft.Transact(all); err != nil {
		t.Fatal(err)
	}
	seen := events()
	for _, name := range []string{plan.Mark, plan.ServicesTable} {
		stands, goes := slices.Index(seen, "+"+name+"-replaced"), slices.Index(seen, "-"+name)
		again, ends := lastIndex(seen, "+"+name), lastIndex(seen, "-"+name+"-replaced")
		if stands < 0 || goes < stands || again < goes || ends < again {
			t.Errorf("events of tables: %v", seen)
		}
	}
	h.holds(t, replacedTables())
}

// TestReplacedTableLosesServices replaces the table of services with steps that also remove a service.
func TestReplacedTableLosesServices(t *testing.T) {
	h := openTestHost(t)
	all := someServices()
	h.reach(t, nil, services(all...))
	want := services(all[2:]...)
	if err := h.nft.Transact(append(plan.Diff(services(all...), want), plan.Diff(nil, want)...)); err != nil {
		t.Fatal(err)
	}
	h.holds(t, want)
}

func lastIndex(all []string, one string) int {
	for i, s := range slices.Backward(all) {
		if s == one {
			return i
		}
	}
	return -1
}

// TestInterruptedReplacement finds the stand-ins that a process has left which was killed while it replaced the tables:
// the tables are replaced again.
func TestInterruptedReplacement(t *testing.T) {
	for _, want := range []plan.Plan{replacedTables(), nil} {
		h := openTestHost(t)
		if err := h.nft.Transact(plan.Diff(nil, replacedTables())); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{plan.Mark, plan.ServicesTable} {
			h.run(t, "nft", "add", "table", "inet", name+"-replaced")
		}
		have, err := h.Observe(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.nft.Transact(plan.Diff(have, want)); err != nil {
			t.Fatal(err)
		}
		left := h.run(t, "nft", "list", "tables")
		if strings.Contains(left, "replaced") || len(want) == 0 && left != "" {
			t.Errorf("tables are left:\n%s", left)
		}
		h.holds(t, want)
	}
}

// tableEvents returns a function that returns which tables of the host were created (+) and deleted (-) since.
func tableEvents(t *testing.T, h *Host) (since func() []string) {
	t.Helper()
	fd := -1
	if err := h.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
		}
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK,
				Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() (all []string) {
		t.Helper()
		buf := make([]byte, 1<<20)
		for {
			n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				return all
			}
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, namesOfTables(t, buf[:n])...)
		}
	}
}

// namesOfTables returns the tables that netlink messages create (+) or delete (-).
func namesOfTables(t *testing.T, data []byte) (all []string) {
	t.Helper()
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		sign, is := map[uint16]string{unix.NFT_MSG_NEWTABLE: "+", unix.NFT_MSG_DELTABLE: "-"}[m.Header.Type&0xff]
		if !is || m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
			continue
		}
		nlutil.Attributes(m.Data[4:], func(kind uint16, value []byte) {
			if kind == unix.NFTA_TABLE_NAME {
				all = append(all, sign+unix.ByteSliceToString(value))
			}
		})
	}
	return all
}
