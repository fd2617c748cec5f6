npm pkg set type=module
npm install --save-dev typescript@5.9 @types/node@22
npx tsc --strict --module nodenext --target es2022 register.ts
node register.js
