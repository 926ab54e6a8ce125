// Package bpf holds the compiled eBPF programs and the layout of their maps.
// The sources are in the folder bpf at the top; package kernel loads them.
package bpf

//go:generate go tool bpf2go -cc clang-19 -target bpfel -strip llvm-strip-19 -no-global-types -type mapping -type flow -type flow_key -type address -type total -type workload -type grant -type next_hop -type alias -type alias_key -type conn -type frontend -type frontend_key -type real -type load -type service -type affinity -type affinity_key -type xdp_link -type endpoint -type uplink_check -type outbound_link -type outbound_source -type outbound_name -type outbound_owner -type policy -type policies Fairlead ../../../bpf/fairlead.c -- -O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -target bpfel -strip llvm-strip-19 -no-global-types -type fenced Fence ../../../bpf/fence.c -- -O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-19 -target bpfel -strip llvm-strip-19 -no-global-types -type range -type remote -type station Overlay ../../../bpf/overlay.c -- -O2 -g -Wall -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// Of the Go code that bpf2go writes, package ebpf uses the types, the names and the functions that decode the programs. The
// rest is removed: structs with all maps and programs, and what loads and closes them.
//
//go:generate sed -i -e "/^\\/\\/ Load[A-Za-z]*Objects loads/,/^\\/\\/ Do not access/{/^\\/\\/ Do not access/!d}" -e "/^\t\"io\"/d" fairlead_bpfel.go fence_bpfel.go overlay_bpfel.go
