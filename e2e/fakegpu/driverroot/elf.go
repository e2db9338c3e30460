// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package driverroot

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// The offsets of the parts of a generated object.
const (
	headerSize  = 64
	segmentSize = 56
	segments    = 3
	symbolSize  = 24
	entrySize   = 16

	symbolOffset = headerSize + segments*segmentSize
	hashOffset   = symbolOffset + symbolSize
	// One bucket and one chain, for the one empty symbol.
	hashSize     = 4 * 4
	stringOffset = hashOffset + hashSize
)

// sharedObject is the smallest shared object that the dynamic linker and
// ldconfig accept: it has a name and no symbols.
func sharedObject(machine elf.Machine, soname string) []byte {
	names := append([]byte{0}, soname...)
	names = append(names, 0)
	for len(names)%8 != 0 {
		names = append(names, 0)
	}
	dynamicOffset := uint64(stringOffset + len(names))
	dynamic := []elf.Dyn64{
		{Tag: int64(elf.DT_SONAME), Val: 1},
		{Tag: int64(elf.DT_HASH), Val: hashOffset},
		{Tag: int64(elf.DT_STRTAB), Val: stringOffset},
		{Tag: int64(elf.DT_STRSZ), Val: uint64(len(names))},
		{Tag: int64(elf.DT_SYMTAB), Val: symbolOffset},
		{Tag: int64(elf.DT_SYMENT), Val: symbolSize},
		{Tag: int64(elf.DT_NULL)},
	}
	dynamicSize := uint64(len(dynamic) * entrySize)
	size := dynamicOffset + dynamicSize

	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_DYN), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: segmentSize, Phnum: segments, Shentsize: 64,
	}
	const readWrite = uint32(elf.PF_R | elf.PF_W)
	table := []elf.Prog64{
		// The dynamic linker relocates the dynamic section in place.
		{Type: uint32(elf.PT_LOAD), Flags: readWrite, Filesz: size, Memsz: size, Align: 0x1000},
		{Type: uint32(elf.PT_DYNAMIC), Flags: readWrite, Off: dynamicOffset, Vaddr: dynamicOffset, Paddr: dynamicOffset,
			Filesz: dynamicSize, Memsz: dynamicSize, Align: 8},
		// Without this, loading the object makes every stack executable.
		{Type: uint32(elf.PT_GNU_STACK), Flags: readWrite, Align: 16},
	}
	hash := [4]uint32{1, 1, 0, 0}

	var out bytes.Buffer
	for _, part := range []any{header, table, elf.Sym64{}, hash, names, dynamic} {
		// Writing fixed-size values to memory cannot fail.
		_ = binary.Write(&out, binary.LittleEndian, part)
	}
	return out.Bytes()
}
