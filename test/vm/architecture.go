package vm

import "strings"

// architecture is what machines of an architecture differ in.
type architecture struct {
	// goarch is Go's name of it.
	goarch, emulator string
	// cpu are the emulator's options for the machine and its CPU, and console is the kernel's name of its serial line.
	cpu     []string
	console string
	// append are the kernel's parameters.
	append string
	// busybox: the tools in the guest are those of busybox, because the host's are for another architecture.
	busybox bool
}

var (
	amd64 = architecture{goarch: "amd64", emulator: "qemu-system-x86_64", console: "ttyS0",
		// Emulating features of newer CPUs takes time, and no test needs them. QEMU 7.2 corrupts the flags at
		// cmpxchg16b, on which Linux 6.12 panics at random.
		cpu: []string{"-cpu", "qemu64,-cx16"},
		// The kernel would calibrate the timer of its interrupt controller in a loop that takes a third of the
		// boot, and copy memory with repeated instructions, which the emulator runs one by one.
		append: "no_timer_check nolapic_timer clearcpuid=rep_good"}
	arm64 = architecture{goarch: "arm64", emulator: "qemu-system-aarch64", console: "ttyAMA0",
		cpu: []string{"-machine", "virt", "-cpu", "cortex-a57"}, busybox: true}
)

// architectureOf returns the architecture of a kernel, which ends the name of its image.
func architectureOf(image string) architecture {
	if strings.HasSuffix(image, "-"+arm64.goarch) {
		return arm64
	}
	return amd64
}
