-- What a script sees: Lua's own functions with their bounds, and Redis's libraries. `host` has what
-- is not written in Lua. Tables that scripts share are shown through others, which nothing changes.
local host = ...

local error, type, tostring, select, next = error, type, tostring, select, next
local pcall, xpcall, setfenv, unpack, pairs = host.pcall, host.xpcall, setfenv, unpack, pairs
local rawget, rawset, getmetatable, setmetatable = rawget, rawset, getmetatable, setmetatable
local create, resume, running = coroutine.create, coroutine.resume, coroutine.running
local collectgarbage, concat = collectgarbage, table.concat

local READONLY = "Attempt to modify a readonly table"
-- How deep coroutines are within each other.
local DEPTH_MAX = 8
-- What is shown to scripts is called by a function of C (`host.shim`): a call of it at the end of a
-- function leaves that one's frame, which says the line of an error. This is the level of a script
-- that calls it.
local LEVEL = 3

-- What is shown by which table.
local shown_by = {}

local function show(shown)
  local proxy = {}
  for name, value in next, shown do
    if type(value) == "function" and not host.is_of_c(value) then shown[name] = host.shim(value) end
  end
  shown_by[proxy] = shown
  return setmetatable(proxy, {
    __index = shown,
    __newindex = function() error(READONLY, 2) end,
    __metatable = false,
  })
end

local globals = setmetatable({}, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
})
local environment = show(globals)

-- Errors that are caught: one that ends the script goes on.
local depth = 0

local function caught(ok, ...)
  if not ok and host.is_ended() then error((...), 0) end
  return ok, ...
end

local function caught_text(ok, ...)
  if ok then return true, ... end
  local thrown = ...
  if host.is_ended() then error(thrown, 0) end
  if type(thrown) == "table" then
    local text = rawget(thrown, "err")
    if type(text) == "string" or type(text) == "number" then thrown = text end
  end
  return false, thrown
end

local function resumed(ok, ...)
  depth = depth - 1
  if not ok and host.is_ended() then error((...), 0) end
  return ok, ...
end

local function go_on(co, ...)
  -- A resume that has thrown has not counted down.
  if depth > 0 and not running() then depth = 0 end
  if depth >= DEPTH_MAX then return false, "C stack overflow" end
  depth = depth + 1
  return resumed(resume(co, ...))
end

local function passed(ok, ...)
  if not ok then error((...), 0) end
  return ...
end

local function compiled(text, name)
  local found, message = host.compile(text, name)
  if not found then return nil, message end
  return setfenv(found, environment)
end

for _, name in ipairs({
  "assert", "error", "ipairs", "rawequal", "select", "tonumber", "tostring", "type", "_VERSION",
}) do
  rawset(globals, name, _G[name])
end

-- Functions of C are not interrupted: these have bounds, or are in steps.
local function compare(one, other) return one < other end
rawset(globals, "unpack", host.bounded("unpack", unpack, compare))
table.insert = host.bounded("insert", table.insert, compare)
table.sort = host.bounded("sort", table.sort, compare)

local function collect()
  for _ = 1, 2 do
    repeat host.work(0) until collectgarbage("step", 100)
  end
  return 0
end

local base = {
  pcall = function(...) return caught_text(pcall(...)) end,
  xpcall = function(work, handler)
    -- While the script is ended its hook throws, and nothing would end a handler that does not.
    return caught(xpcall(work, function(thrown)
      if host.is_ended() then return thrown end
      return handler(thrown)
    end))
  end,
  gcinfo = function() return collectgarbage("count") end,
  collectgarbage = function(option)
    if option == nil or option == "collect" then return collect() end
    if option == "count" or option == "step" then return collectgarbage(option) end
    return 0
  end,
  getmetatable = function(value)
    if shown_by[value] or type(value) == "string" then return nil end
    return getmetatable(value)
  end,
  setmetatable = function(...)
    local changed = ...
    if changed ~= nil and shown_by[changed] then error(READONLY, 0) end
    return setmetatable(...)
  end,
  rawget = function(from, key)
    return rawget(from ~= nil and shown_by[from] or from, key)
  end,
  rawset = function(into, key, value)
    if into ~= nil and shown_by[into] then error(READONLY, 0) end
    return rawset(into, key, value)
  end,
  next = function(of, key)
    return next(of ~= nil and shown_by[of] or of, key)
  end,
  pairs = function(of)
    local shown = of ~= nil and shown_by[of]
    if not shown then return pairs(of) end
    local key
    return function()
      local value
      key, value = next(shown, key)
      return key, value
    end
  end,
  loadstring = function(text, name) return compiled(text, name) end,
  load = function(pieces, name)
    local all = {}
    for piece in pieces do
      if piece == "" then break end
      all[#all + 1] = piece
    end
    return compiled(concat(all), name or "=(load)")
  end,
}
for name, value in next, base do rawset(globals, name, host.shim(value)) end

-- Fails with the second value if the first is false.
local function checked(name)
  local work = host[name]
  return function(...)
    local ok, value, other = work(...)
    if not ok then error(value, LEVEL) end
    return value, other
  end
end

local function checked_all(name)
  local work = host[name]
  local function values(ok, ...)
    if not ok then error((...), LEVEL + 1) end
    return ...
  end
  return function(...)
    return values(work(...))
  end
end

string.dump = nil
-- What may make much of little counts as work first.
local rep = string.rep
string.rep = function(text, count)
  if text == "" and tonumber(count) then return "" end
  if (type(text) == "string" or type(text) == "number") and tonumber(count) then
    host.work(#tostring(text) * count / 16)
  end
  return rep(text, count)
end
string.find = checked_all("find")
string.match = checked_all("match")
string.gsub = function(text, pattern, by, most)
  local kind = type(by)
  if kind ~= "string" and kind ~= "number" and kind ~= "table" and kind ~= "function" then
    error("bad argument #3 to 'gsub' (string/function/table expected)", LEVEL)
  end
  if kind == "string" or kind == "number" then
    local ok, value, count = host.gsub(text, pattern, by, most)
    if not ok then error(value, LEVEL) end
    return value, count
  end
  -- The replacement may call a command, or fail.
  local ok, matches, tail = host.matches(text, pattern, most)
  if not ok then error(matches, LEVEL) end
  local pieces, count = {}, 0
  for index = 1, #matches do
    local match = matches[index]
    local value
    if kind == "table" then value = by[match[3]] else value = by(unpack(match, 3, match.n)) end
    if value == nil or value == false then
      value = match[2]
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", LEVEL)
    end
    pieces[#pieces + 1] = match[1]
    pieces[#pieces + 1] = value
    count = count + 1
  end
  pieces[#pieces + 1] = tail
  return concat(pieces), count
end
string.gmatch = function(text, pattern)
  local from = 1
  local function found(ok, after, ...)
    if not ok then error(after, 3) end
    if after == nil then return nil end
    from = after
    return ...
  end
  text, pattern = host.texts(text, pattern)
  if not text then error(pattern, LEVEL) end
  return function() return found(host.gmatch(text, pattern, from)) end
end
string.gfind = string.gmatch

math.random = function(...)
  local count, from, to = select("#", ...), ...
  local number = host.random()
  if count == 0 then return number end
  if count > 2 then error("wrong number of arguments", LEVEL) end
  if count == 1 then from, to = 1, from end
  from, to = tonumber(from), tonumber(to)
  if not from or not to then error("bad argument #1 to 'random' (number expected)", LEVEL) end
  if from > to then error("bad argument #" .. count .. " to 'random' (interval is empty)", LEVEL) end
  return math.floor(number * (to - from + 1)) + from
end
math.randomseed = function(seed) host.seed(seed) end

local function refuse(text) error({ err = "ERR " .. text }) end

local redis = {
  call = host.call,
  pcall = host.pcall_command,
  error_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { err = host.error_text(text) }
  end,
  status_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then
      return { err = "ERR wrong number or type of arguments" }
    end
    return { ok = text }
  end,
  sha1hex = function(...)
    if select("#", ...) ~= 1 then refuse("wrong number of arguments") end
    return host.sha1hex((...))
  end,
  log = function(...)
    local level = ...
    if select("#", ...) < 2 then refuse("redis.log() requires two arguments or more.") end
    if type(level) ~= "number" then
      refuse("First argument must be a number (log level).")
    end
    if level < 0 or level > 3 then refuse("Invalid debug level.") end
    local words = { select(2, ...) }
    for place = 1, #words do words[place] = tostring(words[place]) end
    host.log(level, concat(words, " "))
  end,
  setresp = function(...)
    if select("#", ...) ~= 1 then refuse("redis.setresp() requires one argument.") end
    local version = ...
    if version ~= 2 and version ~= 3 then refuse("RESP version must be 2 or 3.") end
    host.setresp(version)
  end,
  set_repl = function(...)
    if select("#", ...) ~= 1 then refuse("redis.set_repl() requires two arguments.") end
    local flags = tonumber((...)) or -1
    if flags < 0 or flags > 3 then
      refuse("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.")
    end
  end,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  REDIS_VERSION = "7.2.4", REDIS_VERSION_NUM = 0x00070204,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
}

local function setting(name)
  return function(...)
    local ok, value, second, third = host.json_setting(name, ...)
    if not ok then error(value, LEVEL) end
    return value, second, third
  end
end

local cjson = {
  encode = checked("json_encode"),
  decode = checked("json_decode"),
  null = host.null,
  _NAME = "cjson", _VERSION = "2.1.0",
}
for _, name in ipairs({
  "encode_max_depth", "decode_max_depth", "encode_sparse_array", "encode_number_precision",
  "encode_invalid_numbers", "decode_invalid_numbers", "encode_keep_buffer",
}) do
  cjson[name] = setting(name)
end

local cmsgpack = {
  pack = checked("message_pack"),
  unpack = checked_all("message_unpack"),
  unpack_one = checked_all("message_unpack_one"),
  unpack_limit = checked_all("message_unpack_limit"),
  _NAME = "cmsgpack", _VERSION = "lua-cmsgpack 0.4.0",
}

local struct = {
  pack = checked("struct_pack"),
  unpack = checked_all("struct_unpack"),
  size = checked("struct_size"),
}

local bit = {}
for _, name in ipairs({
  "tobit", "tohex", "bnot", "band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror",
  "bswap",
}) do
  local work = host.bit
  bit[name] = function(...)
    local ok, value = work(name, ...)
    if not ok then error(value, LEVEL) end
    return value
  end
end

local shown_coroutine = {
  create = create,
  resume = go_on,
  running = coroutine.running,
  status = coroutine.status,
  yield = coroutine.yield,
  wrap = function(work)
    local co = create(work)
    return function(...) return passed(go_on(co, ...)) end
  end,
}

for name, library in next, {
  bit = bit, cjson = cjson, cmsgpack = cmsgpack, coroutine = shown_coroutine, math = math,
  os = { clock = host.clock }, redis = redis, string = string, struct = struct, table = table,
} do
  rawset(globals, name, show(library))
end
rawset(globals, "_G", environment)

local function handler(thrown)
  local source, line = host.where()
  if type(thrown) ~= "table" or shown_by[thrown] then
    thrown = { err = "ERR " .. tostring(thrown) }
  end
  if source then
    rawset(thrown, "source", source)
    rawset(thrown, "line", line)
  end
  return thrown
end

return {
  environment = environment,
  globals = globals,
  handler = handler,
  -- What a script has left that failed.
  forget = function()
    depth = 0
    rawset(globals, "KEYS", nil)
    rawset(globals, "ARGV", nil)
  end,
  is_clean = function()
    for proxy in next, shown_by do
      if next(proxy) ~= nil then return false end
    end
    return true
  end,
}
