from dqnspeed.options import main

if __name__ == "__main__":
    main()
